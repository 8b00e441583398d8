"""docs/step.svg: one training step as bars, with the part that each rung removes.

The first bar is the baseline's step; the second is what 02 leaves, drawn wider, and the third what
10 leaves, on the scale of the second.
"""

from ladder.machine import GPU
from ladder.measure.rates import rates_of
from ladder.measure.work import LABELS, roofline_ms, work
from ladder.show.colors import PARTS, PARTS_ON_DARK

LEFT, WIDTH = 20, 760
# Of each part of a step, in the order of PARTS: the rungs after 02 that shorten it, the last first.
REMOVED_BY = (["03"], ["06", "03"], ["06", "05", "03"], ["10"])
NAMES = {"03": "03 bf16", "05": "05 torch.compile"}


def step_picture(gpu: GPU, B: int) -> str:
    """The picture as SVG."""
    rates = rates_of(gpu)
    ms = {stem[:2]: roofline_ms(step, rates) for stem, step in work(B).items()}
    first = sum(ms["ba"])
    tf32 = sum(ms["02"])
    last = sum(ms["10"])
    shapes = [*heading(gpu, B), text(LEFT, 102, f"00 baseline: {first:.0f} ms", "b")]
    shapes += baseline_bar(ms, WIDTH / first)
    thin = ms["ba"][3] - ms["01"][3] - (ms["01"][2] - ms["ba"][2])
    shapes.append(text(780, 102, f"01 weight tying: {thin:.1f} ms, too thin to draw", "e"))
    words = f"02 leaves {tf32:.0f} ms. The same step, drawn wider:"
    shapes.append(text(LEFT, 192, words, "b"))
    scale = WIDTH / tf32
    shapes += bar_of_removals(ms, scale)
    shapes.append(text(LEFT, 316, f"10 leaves {last:.0f} ms:", "b"))
    x = LEFT
    for part, width in enumerate(ms["10"]):
        shapes += solid(x, 326, width * scale, part, f"{width:.0f}")
        x += width * scale
    other = ms["02"][2] - ms["03"][2]
    fused = ms["09"][3] - ms["10"][3]
    clipping = ms["08"][3] - ms["07"][3]
    for y, words in (
        (
            340,
            f"Thin parts: 03 removes {other:.0f} ms of memory traffic, 10 removes {fused:.0f} ms",
        ),
        (360, f"of the optimizer. 08 adds {clipping:.1f} ms. 04 and 09 do not change the time."),
        (380, "07: no gain calculated."),
    ):
        shapes.append(text(x + 16, y, words))
    return svg(shapes)


def heading(gpu: GPU, B: int) -> list[str]:
    """Title, what is calculated, and the colours."""
    shapes = [text(LEFT, 26, "What each rung removes from a training step", "b")]
    words = f"Calculated: roofline, GPT-2 124M, {gpu.name}, B={B}, T=1024. Milliseconds."
    shapes.append(text(LEFT, 46, words))
    x = LEFT
    for part, label in enumerate(LABELS):
        shapes.append(f'<rect x="{x}" y="58" width="14" height="14" class="p{part}"/>')
        shapes.append(text(x + 19, 71, label))
        x += 40 + 8 * len(label)
    shapes.append(f'<rect x="{x}" y="58.75" width="20" height="12.5" class="p3 gone"/>')
    shapes.append(text(x + 27, 71, "removed, by which rung"))
    return shapes


def baseline_bar(ms: dict, scale: float) -> list[str]:
    """What 02 removes from the baseline's step. What 01 removes is too thin to draw."""
    shapes = []
    x = LEFT
    for part, before in enumerate(ms["ba"]):
        kept = min(before, ms["02"][part])
        shapes += solid(x, 112, kept * scale, part)
        x += kept * scale
        if part < 2:
            words = ("02 TF32", f"removes {before - kept:.0f} ms")
            if part:
                words = ("02", f"{before - kept:.0f}")
            shapes += removed(x, 112, (before - kept) * scale, part, *words)
            x += (before - kept) * scale
    return shapes


def bar_of_removals(ms: dict, scale: float) -> list[str]:
    """What is left of each part at the end, then what each rung removes from it."""
    order = list(ms)
    shapes = []
    x = LEFT
    for part, rungs in enumerate(REMOVED_BY):
        kept = ms["10"][part]
        shapes += solid(x, 232, kept * scale, part, f"{kept:.0f}")
        x += kept * scale
        for rung in rungs:
            gone = ms[order[order.index(rung) - 1]][part] - ms[rung][part]
            name = NAMES[rung] if rung in NAMES and gone * scale > 100 else rung
            shapes += removed(x, 232, gone * scale, part, name, f"{gone:.0f}")
            x += gone * scale
    return shapes


def solid(x: float, y: float, width: float, part: int, words: str = "") -> list[str]:
    """A part of a step that stays."""
    shapes = [f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="52" class="p{part}"/>']
    if words and width > 30:
        shapes.append(text(x + width / 2, y + 32, words, f"m b on{part}"))
    return shapes


def removed(x: float, y: float, width: float, part: int, rung: str, words: str) -> list[str]:
    """A part of a step that a rung removes; where it is thin, the rung's number stands above it."""
    size = f'width="{width - 1.5:.1f}" height="50.5"'
    shapes = [f'<rect x="{x + 0.75:.1f}" y="{y + 0.75}" {size} class="p{part} gone"/>']
    middle = x + width / 2
    if width > 30:
        shapes.append(text(middle, y + 24, rung, "m b"))
        shapes.append(text(middle, y + 43, words, "m"))
    else:
        aside = 4 * (2 * part - 5)  # the two thin parts are neighbours
        shapes.append(text(middle + aside, y - 10, rung, "m b"))
        shapes.append(f'<path d="M{middle:.1f} {y - 6}v5" class="tick"/>')
    return shapes


def text(x: float, y: float, words: str, style: str = "") -> str:
    """Words; style b is bold, m has its middle at x, e its end."""
    return f'<text x="{x:.1f}" y="{y}" class="{style}">{words}</text>'


def svg(shapes: list[str]) -> str:
    """The file, for a white ground and for a dark one."""
    light = dark = ""
    for part, (on_white, on_dark) in enumerate(zip(PARTS, PARTS_ON_DARK, strict=True)):
        light += f".p{part}{{fill:{on_white};stroke:{on_white}}}"
        dark += f".p{part}{{fill:{on_dark};stroke:{on_dark}}}"
    shapes = "\n".join(shapes)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="800" height="396" \
viewBox="0 0 800 396" role="img">
<title>What each rung removes from a training step, in calculated milliseconds</title>
<style>
text{{font:15px system-ui,sans-serif;fill:#1f2328}}.b{{font-weight:bold}}.m{{text-anchor:middle}}
.e{{text-anchor:end}}.ground{{fill:#fff}}.tick{{stroke:#1f2328}}rect{{stroke-width:0}}
.on0,.on3{{fill:#fff}}.gone{{fill-opacity:.2;stroke-width:1.5;stroke-dasharray:4 3}}
{light}
@media (prefers-color-scheme:dark){{text{{fill:#e6edf3}}.ground{{fill:#0d1117}}
.tick{{stroke:#e6edf3}}.on0,.on1,.on2,.on3{{fill:#0d1117}}{dark}}}
</style>
<rect width="800" height="396" class="ground"/>
{shapes}
</svg>
"""
