"""The pictures of docs/primer.md: a step and what each rung removes from it, and four rungs inside.

All are calculated, for one A100 at B=16, T=1024.
"""

from blocks import A100, B
from svg import PARTS, Picture, Row

from ladder.machine import find_gpu
from ladder.measure.rates import rates_of
from ladder.measure.work import LABELS, roofline_ms, work
from ladder.show.tables import titles

GPU = find_gpu(A100)
SCORES = 16 * 12 * 1024 * 1024  # of a layer: B sequences, heads, pairs of tokens
PARAMETERS = 124.475904e6  # from rung 07 on
REMOVING = ["02_tf32", "03_bf16_autocast", "05_torch_compile", "06_flash_attention"]
REMOVING += ["10_fused_adamw"]
NAMES = 104  # pixels of the names of kernels


def draw_step(width: int) -> Picture:
    """The parts of a step after the rungs that shorten it most: what 02 leaves is drawn wider."""
    steps = {stem: roofline_ms(step, rates_of(GPU)) for stem, step in work(B).items()}
    picture = Picture(width, "What each rung removes from a training step, in milliseconds")
    start(picture, "What each rung removes from a step", f"{GPU.name}, B={B}: milliseconds")
    picture.legend(dict(zip(PARTS, LABELS, strict=True)))
    before, after = ["baseline", *REMOVING[:1]], REMOVING
    picture.rows(step_rows(steps, before, sum(steps["baseline"]), 0), bars=0.82)
    picture.heading("02 to 10, drawn wider")
    picture.rows(step_rows(steps, after, sum(steps["02_tf32"]), 0), bars=0.82)
    return picture


def step_rows(steps: dict, stems, longest: float, digits: int) -> list[Row]:
    """A bar for each of these rungs, its parts in milliseconds with so many digits."""
    rows = []
    before = None
    for stem in stems:
        total = sum(steps[stem])
        bar = []
        for part, ms in zip(PARTS, steps[stem], strict=True):
            bar.append((ms / longest, part, f"{ms:.{digits}f}"))
        row = Row(titles()[stem], bar, f"{total:.{digits}f} ms")
        if before:
            row.right = faster(before, total)
        rows.append(row)
        before = total
    return rows


def faster(before: float, after: float) -> str:
    """By what a time was divided, such as `÷ 3.0` or `÷ 1.35`."""
    ratio = before / after
    return f"÷ {ratio:.1f}" if ratio >= 2 else f"÷ {ratio:.2f}"


def start(picture: Picture, words: str, below: str):
    """What a picture shows, and what is calculated."""
    picture.heading(words)
    picture.say(f"Calculated for one {below}")


def draw_fusion(width: int) -> Picture:
    """Six kernels with a read and a write each become one."""
    half = SCORES * 2 / 1e6  # MB of the scores in bfloat16
    full = 2 * half
    kernels = {"scale": (half, half), "copy": (half, half), "mask": (half, half)}
    kernels |= {"to FP32": (half, full), "softmax": (full, full), "to bf16": (full, half)}
    picture = Picture(width, "Six kernels with a read and a write each become one")
    words = "A100: the scores of one layer in forward, and the MB that each kernel moves"
    start(picture, "05: six kernels become one", words)
    picture.legend({"traffic": "read from memory", "grid": "written"})
    for rung, shown in (("04", kernels), ("05, in registers", {"one kernel": (half, half)})):
        moved = sum(map(sum, shown.values()))
        picture.heading(f"Rung {rung}: {moved / 1e3:.1f} GB, {spent(moved):.1f} ms")
        rows = []
        for name, (read, written) in shown.items():
            bar = [(read / full / 2, "traffic", f"{read:.0f}")]
            rows.append(Row(name, [*bar, (written / full / 2, "grid", f"{written:.0f}")]))
        picture.rows(rows, left=NAMES)
    return picture


def spent(megabytes: float) -> float:
    """Milliseconds that they take at the GPU's bandwidth."""
    return megabytes / GPU.bandwidth


def draw_adamw(width: int) -> Picture:
    """The twenty reads and writes of AdamW become seven."""
    passes = {"decay p": ("p", "p"), "mix g in m": ("mg", "m"), "shrink v": ("v", "v")}
    passes |= {"add g² to v": ("vg", "v"), "√v": ("v", "s"), "correct": ("s", "s")}
    passes |= {"add ε": ("s", "s"), "update p": ("pms", "p")}
    one = 4 * PARAMETERS / 1e6  # MB of a read or a write of all parameters
    picture = Picture(width, "Eight passes of AdamW through memory become one")
    start(picture, "10: eight passes become one", "A100: all 124.5M parameters, 4 bytes each")
    picture.legend({"traffic": "read from memory", "grid": "written"})
    picture.say("p weight, g gradient, m and v moments, s scratch")
    for rung, shown in (("09", passes), ("10, in registers", {"one pass": ("pgmv", "pmv")})):
        count = len("".join(map("".join, shown.values())))
        words = f"{count} times {one:.0f} MB, {spent(count * one):.1f} ms"
        picture.heading(f"Rung {rung}: {words}")
        rows = []
        for name, (reads, writes) in shown.items():
            bar = [(1 / 7, "traffic", word) for word in reads]
            rows.append(Row(name, bar + [(1 / 7, "grid", word) for word in writes]))
        picture.rows(rows, left=NAMES)
    return picture


def draw_tiles(width: int) -> Picture:
    """All scores in memory, or one tile at a time on the chip."""
    picture = Picture(width, "All scores in memory, or one tile of them at a time on the chip")
    start(picture, "06: the scores never reach memory", "A100: one layer, forward, bfloat16")
    labels = {"traffic": "in memory", "box": "computed, then masked", "attention": "on the chip"}
    picture.legend(labels | {"grid": "done, or to come"})
    top = picture.y
    scores = SCORES * 2 / 1e6
    words = f"Rung 05: all scores, in memory. 4 passes over {scores:.0f} MB"
    draw_square(picture, 0, f"{words} = {4 * scores / 1e3:.1f} GB", flash=False)
    if picture.wide:
        picture.y = top
    values = 16 * 1024 * 768 * 2 / 1e6
    words = "Rung 06: a tile at a time, 28 of 64 skipped. "
    words += f"Q, K, V in, result out: 4 · {values:.0f} MB"
    draw_square(picture, picture.width - 320, f"{words} = {4 * values:.0f} MB", flash=True)
    return picture


def draw_square(picture: Picture, x: float, words: str, flash: bool):
    """The scores of one head, a query a row: tile by tile, or all of them."""
    x = max(0, x) if picture.wide else 0
    top = picture.wrapped(x, picture.y, words, 320, "ink") + 10
    side = 30
    for row in range(8):
        for column in range(row + 1 if flash else 8):
            color = "traffic" if column <= row else "box"
            if flash:
                color = "attention" if (row, column) == (5, 3) else "grid"
            picture.rect(x + side * column, top + side * row, side - 1, side - 1, color)
    picture.y = top + 8 * side + 8


def draw_formats(width: int) -> Picture:
    """The bits of four formats, and what a GPU does with them."""
    rates = rates_of(GPU)
    formats = {
        "FP32": (8, 23, f"4 bytes, {rates['fp32']:.0f} TFLOP/s, no tensor cores"),
        "TF32": (8, 10, f"4 bytes, {rates['tf32']:.0f} TFLOP/s on tensor cores"),
        "bfloat16": (8, 7, f"2 bytes, {rates['half']:.0f} TFLOP/s on tensor cores"),
        "float16": (5, 10, "2 bytes, on tensor cores, a smaller range"),
    }
    picture = Picture(width, "The bits of FP32, TF32, bfloat16 and float16")
    start(picture, "02 and 03: formats, bit by bit", "A100, at rates that owners measured")
    labels = {"soft": "sign", "ink": "exponent: range", "grid": "mantissa: precision"}
    picture.legend(labels | {"box": "ignored"})
    rows = []
    for name, (exponent, mantissa, words) in formats.items():
        bar = [(1 / 32, "soft", ""), (exponent / 32, "ink", f"{exponent}")]
        row = Row(name, [*bar, (mantissa / 32, "grid", f"{mantissa}")], right=words)
        if name == "TF32":
            row.bar.append((13 / 32, "box", "13"))
        rows.append(row)
    picture.rows(rows, bars=0.55 if picture.wide else 1)
    return picture


DRAW = {"step": draw_step, "formats": draw_formats, "fusion": draw_fusion}
DRAW |= {"tiles": draw_tiles, "adamw": draw_adamw}
