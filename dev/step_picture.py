"""docs/step.svg: one training step as bars, with the part that each rung removes.

The first bar is the baseline's step; the second is what 02 leaves, drawn wider, and the third what
10 leaves, on the scale of the second.
"""

from svg import PARTS, WIDE, Picture

from ladder.machine import GPU
from ladder.measure.rates import rates_of
from ladder.measure.work import LABELS, roofline_ms, work

COLORS = [*PARTS]  # of each part of a step
HEIGHT = 52  # of a bar
LENGTH = WIDE - 16  # of the longest; a number at its end has room
# Of each part of a step: the rungs after 02 that shorten it, the last first.
REMOVED_BY = (["03"], ["06", "03"], ["06", "05", "03"], ["10"])
NAMES = {"02": "02 TF32", "03": "03 bf16", "05": "05 torch.compile"}


def step_picture(gpu: GPU, B: int) -> str:
    """The picture as SVG."""
    rates = rates_of(gpu)
    ms = {stem[:2]: roofline_ms(step, rates) for stem, step in work(B).items()}
    picture = Picture(WIDE, "What each rung removes from a training step, in milliseconds")
    picture.text(0, 16, "What each rung removes from a training step", size=15, bold=True)
    words = f"Calculated: roofline, GPT-2 124M, {gpu.name}, B={B}, T=1024. Milliseconds."
    picture.text(0, 36, words, "soft")
    x = 0
    for color, label in zip(COLORS, LABELS, strict=True):
        picture.rect(x, 48, 14, 14, color)
        picture.text(x + 19, 60, label)
        x += 45 + 7.5 * len(label)
    outline(picture, x, 49, 20, 12, "optimizer")
    picture.text(x + 27, 60, "removed, by which rung")
    draw_baseline(picture, ms)
    draw_removals(picture, ms)
    return picture.svg(360)


def draw_baseline(picture: Picture, ms: dict):
    """What 02 removes from the baseline's step. What 01 removes is too thin to draw."""
    scale = LENGTH / sum(ms["ba"])
    picture.text(0, 92, f"00 baseline: {sum(ms['ba']):.0f} ms", bold=True)
    thin = sum(ms["ba"]) - sum(ms["01"])
    words = f"01 weight tying: {thin:.1f} ms, too thin to draw"
    picture.text(WIDE, 92, words, "soft", align="right")
    x = 0
    for part, before in enumerate(ms["ba"]):
        kept = min(before, ms["02"][part])
        x = draw_kept(picture, x, 102, kept * scale, part)
        if part < 2:
            words = f"{before - kept:.0f}" if part else f"removes {before - kept:.0f} ms"
            x = draw_removed(picture, x, 102, (before - kept) * scale, part, "02", words)


def draw_removals(picture: Picture, ms: dict):
    """What each later rung removes from what 02 leaves, and what is left at the end."""
    scale = LENGTH / (sum(ms["02"]) + sum(ms["08"]) - sum(ms["07"]))
    words = f"02 leaves {sum(ms['02']):.0f} ms. The same step, drawn wider:"
    picture.text(0, 184, words, bold=True)
    order = list(ms)
    x = 0
    for part, rungs in enumerate(REMOVED_BY):
        kept = ms["10"][part]
        x = draw_kept(picture, x, 210, kept * scale, part, f"{kept:.0f}")
        for rung in rungs:
            gone = ms[order[order.index(rung) - 1]][part] - ms[rung][part]
            x = draw_removed(picture, x, 210, gone * scale, part, rung, f"{gone:.0f}")
    picture.text(0, 292, f"10 leaves {sum(ms['10']):.0f} ms:", bold=True)
    x = 0
    for part, left in enumerate(ms["10"]):
        x = draw_kept(picture, x, 302, left * scale, part, f"{left:.0f}")
    other = ms["02"][2] - ms["03"][2]
    fused = ms["09"][3] - ms["10"][3]
    clipping = ms["08"][3] - ms["07"][3]
    for y, words in (
        (
            316,
            f"Thin parts: 03 removes {other:.0f} ms of memory traffic, 10 removes {fused:.0f} ms",
        ),
        (334, f"of the optimizer. 08 adds {clipping:.1f} ms. 04 and 09 do not change the time."),
        (352, "07: no gain calculated."),
    ):
        picture.text(x + 16, y, words, "soft")


def draw_kept(picture: Picture, x: float, y: float, width: float, part: int, words="") -> float:
    """A part of a step that stays. Returns where it ends."""
    picture.rect(x, y, width, HEIGHT, COLORS[part])
    if words and width > 30:
        ink = PARTS[COLORS[part]]
        picture.text(x + width / 2, y + 31, words, ink, align="middle", bold=True)
    return x + width


def draw_removed(picture, x: float, y: float, width: float, part: int, rung: str, words) -> float:
    """A part of a step that a rung removes; where it is thin, the rung's number stands above it."""
    outline(picture, x + 1, y + 1, width - 2, HEIGHT - 2, COLORS[part])
    middle = x + width / 2
    if width > 30:
        name = NAMES.get(rung, rung) if width > 120 else rung
        picture.text(middle, y + 23, name, align="middle", bold=True)
        picture.text(middle, y + 41, words, align="middle")
    else:
        aside = 4 * (2 * part - 5)  # the two thin parts are neighbours
        picture.text(middle + aside, y - 9, rung, align="middle", bold=True)
        picture.line([(middle, y - 6), (middle, y - 1)], "soft")
    return x + width


def outline(picture: Picture, x: float, y: float, width: float, height: float, color: str):
    """A dashed rectangle."""
    right = x + width
    bottom = y + height
    corners = [(x, y), (right, y), (right, bottom), (x, bottom), (x, y)]
    picture.line(corners, color, 1.5, dashed=True)
