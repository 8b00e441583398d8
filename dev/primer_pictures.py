"""The pictures of docs/primer.md: a step and what each rung removes from it, and four rungs inside.

All are calculated, for one A100 at B=16, T=1024.
"""

from blocks import A100, B
from svg import PARTS, WIDE, Picture

from ladder.machine import find_gpu
from ladder.measure.rates import rates_of
from ladder.measure.work import LABELS, roofline_ms, work

GPU = find_gpu(A100)
SCORES = 16 * 12 * 1024 * 1024  # of a layer: B sequences, heads, pairs of tokens
PARAMETERS = 124.475904e6  # from rung 07 on


# ------------------------------------------------------------------ docs/step.svg

# Of each part of a step, in the order of PARTS: the rungs after 02 that shorten it, the last first.
REMOVED_BY = (["03"], ["06", "03"], ["06", "05", "03"], ["10"])
NAMES = {"02": "02 TF32", "03": "03 bf16", "05": "05 torch.compile"}


def draw_step(width: int) -> str:
    """One training step as bars, with the part that each rung removes.

    The first bar is the baseline's step; the second is what 02 leaves, drawn wider, and the third
    what 10 leaves, on the scale of the second.
    """
    rates = rates_of(GPU)
    ms = {stem[:2]: roofline_ms(step, rates) for stem, step in work(B).items()}
    picture = Picture(width, "What each rung removes from a training step, in milliseconds")
    y = heading(picture, "What each rung removes from a step", f"{GPU.name}, B={B}: milliseconds")
    x = 0
    for part, label in zip(PARTS, LABELS, strict=True):
        if x + 110 > width:
            x = 0
            y += 20
        picture.rect(x, y - 11, 12, 12, part)
        picture.text(x + 18, y, label, size=13)
        x += 34 + 7.5 * len(label)
    if x + 130 > width:
        x = 0
        y += 20
    picture.frame(x, y - 11, 18, 12, "optimizer", pale=True)
    picture.text(x + 24, y, "removed, by which rung", size=13)
    y += 34
    picture.text(0, y, f"00 baseline: {sum(ms['ba']):.0f} ms", bold=True)
    draw_baseline(picture, y + 10, ms)
    y += 92
    picture.text(0, y, f"02 leaves {sum(ms['02']):.0f} ms, drawn wider:", bold=True)
    draw_removals(picture, y + 28, ms)
    y += 110
    picture.text(0, y, f"10 leaves {sum(ms['10']):.0f} ms:", bold=True)
    x = 0
    for part, value in zip(PARTS, ms["10"], strict=True):
        length = value * width / sum(ms["02"])
        stays(picture, x, y + 10, length, part, f"{value:.0f}")
        x += length
    y += 82
    for words in thin_parts(ms, width == WIDE):
        picture.text(0, y, words, "soft", 13)
        y += 19
    return picture.svg(y - 8)


def thin_parts(ms: dict, wide: bool) -> list[str]:
    """What is too thin to see in the bars, in lines of words."""
    thin = sum(ms["ba"]) - sum(ms["01"])
    other = ms["02"][2] - ms["03"][2]
    fused = ms["09"][3] - ms["10"][3]
    clipping = ms["08"][3] - ms["07"][3]
    parts = [
        f"01 removes {thin:.1f} ms, 03 removes {other:.0f} ms of memory traffic,",
        f"10 removes {fused:.0f} ms of the optimizer, 08 adds {clipping:.1f} ms.",
        "04 and 09 do not change the time. 07 is not calculated.",
    ]
    if wide:
        return [f"Thin parts: {parts[0]} {parts[1]}", parts[2]]
    return [
        f"01 removes {thin:.1f} ms, 03 {other:.0f} ms of memory",
        f"traffic, 10 {fused:.0f} ms of the optimizer. 08 adds",
        f"{clipping:.1f} ms. 04 and 09 do not change the time.",
        "07 is not calculated.",
    ]


def draw_baseline(picture: Picture, y: float, ms: dict):
    """What 02 removes from the baseline's step. What 01 removes is too thin to draw."""
    scale = picture.width / sum(ms["ba"])
    x = 0
    for index, part in enumerate(PARTS):
        before = ms["ba"][index]
        kept = min(before, ms["02"][index])
        stays(picture, x, y, kept * scale, part)
        x += kept * scale
        if index < 2:
            removed(picture, x, y, (before - kept) * scale, part, "02", before - kept)
            x += (before - kept) * scale


def draw_removals(picture: Picture, y: float, ms: dict):
    """What is left of each part at the end, then what each rung removes from it."""
    scale = picture.width / sum(ms["02"])
    order = list(ms)
    x = 0
    for index, part in enumerate(PARTS):
        kept = ms["10"][index]
        stays(picture, x, y, kept * scale, part, f"{kept:.0f}")
        x += kept * scale
        for rung in REMOVED_BY[index]:
            gone = ms[order[order.index(rung) - 1]][index] - ms[rung][index]
            removed(picture, x, y, gone * scale, part, rung, gone)
            x += gone * scale


def stays(picture: Picture, x, y, length, part: str, words: str = ""):
    """A part of a step that stays."""
    picture.rect(x, y, length, 46, part)
    if words and length > 24:
        picture.text(x + length / 2, y + 28, words, PARTS[part], 14, "middle", bold=True)


def removed(picture: Picture, x, y, length, part: str, rung: str, ms: float):
    """A part of a step that a rung removes; where it is thin, the rung's number stands above."""
    picture.frame(x + 0.5, y + 0.5, length - 1, 45, part, pale=True)
    middle = x + length / 2
    if length > 20:
        name = NAMES[rung] if rung in NAMES and length > 9 * len(NAMES[rung]) else rung
        picture.text(middle, y + 20, name, size=13, align="middle", bold=True)
        picture.text(middle, y + 38, f"{ms:.0f}", size=13, align="middle")
    elif part == "optimizer":
        picture.text(picture.width, y - 5, rung, size=13, align="right", bold=True)
    else:
        aside = 16 if part == "traffic" else 0  # of its neighbour, the optimizer's 10
        picture.text(middle - aside, y - 5, rung, size=13, align="middle", bold=True)


def heading(picture: Picture, words: str, below: str) -> float:
    """What a picture shows, and what is calculated; returns where it goes on."""
    picture.text(0, 15, words, size=15, bold=True)
    picture.text(0, 34, f"Calculated for one {below}", "soft", 13)
    return 60


# ------------------------------------------------------------------ docs/fusion.svg


def draw_fusion(width: int) -> str:
    """Six kernels with a read and a write each become one."""
    half = SCORES * 2 / 1e6  # MB of the scores in bfloat16
    full = 2 * half
    kernels = [("scale", half, half), ("copy", half, half), ("mask", half, half)]
    kernels += [("to FP32", half, full), ("softmax", full, full), ("to bf16", full, half)]
    moved = sum(read + written for _, read, written in kernels)
    picture = Picture(width, "Six kernels with a read and a write each become one")
    words = "A100: the scores of one layer, forward. MB"
    y = heading(picture, "05: six kernels become one", words)
    picture.text(0, y, "Rung 04: one kernel for each operator", bold=True)
    in_row = 6 if width == WIDE else 3
    for start in range(0, 6, in_row):
        row = []
        for name, read, written in kernels[start : start + in_row]:
            row.append((name, [f"{read:.0f}"], [f"{written:.0f}"]))
        draw_kernels(picture, y + 12, row, "memory" if start else "memory, 2039 GB/s")
        y += 118
    picture.text(0, y + 14, f"Together {moved / 1e3:.1f} GB: {spent(moved):.1f} ms", size=13)
    y += 46
    picture.text(0, y, "Rung 05: one compiled kernel", bold=True)
    inside = "scale → mask → softmax → to bf16, in registers"
    draw_kernels(picture, y + 12, [(inside, [f"{half:.0f}"], [f"{half:.0f}"])], "memory")
    y += 132
    picture.text(0, y, f"Together {full / 1e3:.1f} GB: {spent(full):.1f} ms", size=13)
    return picture.svg(y + 10)


def spent(megabytes: float) -> float:
    """Milliseconds that they take at the GPU's bandwidth."""
    return megabytes / GPU.bandwidth


def draw_kernels(picture: Picture, y: float, kernels: list[tuple], memory: str):
    """A row of kernels below the memory: name, what each reads (down) and writes (up)."""
    picture.rect(0, y, picture.width, 26, "box")
    picture.text(picture.width / 2, y + 18, memory, size=13, align="middle")
    gap = 10
    length = (picture.width + gap) / len(kernels) - gap
    for index, (name, reads, writes) in enumerate(kernels):
        left = index * (length + gap)
        picture.frame(left, y + 74, length, 28)
        picture.text(left + length / 2, y + 93, name, size=13, align="middle")
        arrows = [(words, True) for words in reads] + [(words, False) for words in writes]
        for place, (words, down) in enumerate(arrows):
            x = left + length * (place + 0.5) / len(arrows) - 3.5 * len(words)
            if down:
                picture.arrow(x, y + 28, y + 72)
            else:
                picture.arrow(x, y + 72, y + 28)
            picture.text(x + 6, y + 54, words, size=12.5)


# ------------------------------------------------------------------ docs/adamw.svg


def draw_adamw(width: int) -> str:
    """The twenty reads and writes of AdamW become seven."""
    passes = [
        ("decay p", "p", "p"),
        ("mix g in m", "mg", "m"),
        ("shrink v", "v", "v"),
        ("add g² to v", "vg", "v"),
        ("√v", "v", "s"),
        ("correct", "s", "s"),
        ("add ε", "s", "s"),
        ("update p", "pms", "p"),
    ]
    one = 4 * PARAMETERS / 1e6  # MB of a read or a write of all parameters
    arrows = sum(len(reads) + len(writes) for _, reads, writes in passes)
    picture = Picture(width, "Eight passes of AdamW through memory, twenty arrows, become one")
    y = heading(picture, "10: eight passes become one", "A100: all 124.5M parameters")
    picture.text(0, y - 7, "p weight, g gradient, m and v moments, s scratch", "soft", 13)
    y += 20
    picture.text(0, y, f"Rung 09: eight passes, {arrows} arrows", bold=True)
    in_row = 8 if width == WIDE else 4
    for start in range(0, 8, in_row):
        row = [(name, [*r], [*w]) for name, r, w in passes[start : start + in_row]]
        draw_kernels(picture, y + 12, row, "memory")
        y += 118
    words = (
        f"{arrows} · 4 bytes · 124.5M = {arrows * one / 1e3:.1f} GB: {spent(arrows * one):.1f} ms"
    )
    picture.text(0, y + 14, words, size=13)
    y += 46
    picture.text(0, y, "Rung 10: one pass, 7 arrows", bold=True)
    draw_kernels(
        picture, y + 12, [("the whole update, in registers", [*"pgmv"], [*"pmv"])], "memory"
    )
    y += 132
    words = f"7 · 4 bytes · 124.5M = {7 * one / 1e3:.1f} GB: {spent(7 * one):.1f} ms"
    picture.text(0, y, words, size=13)
    return picture.svg(y + 10)


# ------------------------------------------------------------------ docs/tiles.svg


def draw_tiles(width: int) -> str:
    """All scores in memory, or one tile at a time on the chip."""
    wide = width == WIDE
    picture = Picture(width, "All scores in memory, or one tile of them at a time on the chip")
    y = heading(picture, "06: the scores never reach memory", "A100: one layer, forward, bfloat16")
    side = 240
    draw_square(picture, 60 if wide else 24, y, side)
    if not wide:
        y += side + 96
    draw_tile_grid(picture, 470 if wide else 24, y, side)
    return picture.svg(y + side + 74)


def draw_square(picture: Picture, x: float, y: float, side: float):
    """The scores of one head as rung 05 computes them: half of them only to be masked."""
    picture.text(x, y, "Rung 05: all scores, in memory", bold=True)
    picture.text(x + side / 2, y + 22, "keys", "soft", 13, "middle")
    top = y + 30
    picture.rect(x, top, side, side, "box")
    picture.polygon([(x, top), (x, top + side), (x + side, top + side)], "traffic")
    picture.text(x + side * 0.65, top + 60, "computed,", size=13, align="middle")
    picture.text(x + side * 0.65, top + 77, "then masked", size=13, align="middle")
    picture.text(x + side * 0.28, top + side - 50, "needed", "on-light", 14, "middle", bold=True)
    picture.text(x - 8, top + side / 2, "queries", "soft", 13, "middle", turned=True)
    passes = 4 * SCORES * 2 / 1e9
    words = f"4 passes over {SCORES * 2 / 1e6:.0f} MB = {passes:.1f} GB"
    picture.text(x, top + side + 22, words, size=13)


def draw_tile_grid(picture: Picture, x: float, y: float, side: float):
    """The same as rung 06 computes them: tile by tile, and only those at or below the diagonal."""
    picture.text(x, y, "Rung 06: one tile at a time, on the chip", bold=True)
    picture.text(x + side / 2, y + 22, "keys", "soft", 13, "middle")
    top = y + 30
    tile = side / 8
    for row in range(8):
        for column in range(8):
            color = "traffic" if column <= row else "box"
            left = x + column * tile
            upper = top + row * tile
            if (row, column) == (5, 3):
                picture.rect(left, upper, tile - 1, tile - 1, "attention")
            elif color == "box" or (row, column) < (5, 3):
                picture.rect(left, upper, tile - 1, tile - 1, color)
            else:  # still to come
                picture.frame(left + 0.5, upper + 0.5, tile - 2, tile - 2, "traffic", pale=True)
    picture.text(x + side * 0.72, top + 50, "28 of 64", size=13, align="middle")
    picture.text(x + side * 0.72, top + 67, "skipped", size=13, align="middle")
    middle = top + 5.5 * tile
    picture.line([(x + 4 * tile, middle), (x + side + 8, middle)], "attention", 1.5)
    picture.text(x + side + 12, middle + 5, "on the chip", size=13)
    picture.text(x + side + 12, top + 7.1 * tile, "to come", size=13)
    megabytes = 4 * 16 * 1024 * 768 * 2 / 1e6
    words = f"Q, K, V in, result out: 4 · {megabytes / 4:.0f} MB = {megabytes:.0f} MB."
    picture.text(x, top + side + 22, words, size=13)
    picture.text(x, top + side + 40, "A row of queries keeps its maximum and its sum.", size=13)


# ------------------------------------------------------------------ docs/formats.svg


def draw_formats(width: int) -> str:
    """The bits of four formats, and what a GPU does with them."""
    rates = rates_of(GPU)
    cores = "on tensor cores"
    formats = [
        ("FP32", 8, 23, 0, f"4 bytes, {rates['fp32']:.0f} TFLOP/s, no tensor cores"),
        ("TF32", 8, 10, 13, f"4 bytes, {rates['tf32']:.0f} TFLOP/s {cores}"),
        ("bfloat16", 8, 7, 0, f"2 bytes, {rates['half']:.0f} TFLOP/s {cores}"),
        ("float16", 5, 10, 0, f"2 bytes, {cores}, a smaller range"),
    ]
    picture = Picture(width, "The bits of FP32, TF32, bfloat16 and float16")
    y = heading(picture, "02 and 03: formats, bit by bit", "A100, at rates that owners measured")
    wide = width == WIDE
    left = 84 if wide else 0
    bit = (width - left) / 32
    for name, exponent, mantissa, ignored, words in formats:
        picture.text(0, y + (18 if wide else 0), name, bold=True)
        top = y if wide else y + 8
        x = left
        for count, color, ink in (
            (1, "soft", ""),
            (exponent, "ink", "ground"),
            (mantissa, "grid", "ink"),
        ):
            for place in range(count):
                picture.rect(x + place * bit, top, bit - 1, 26, color)
            if count > 1:
                middle = x + count * bit / 2
                picture.rect(middle - 11, top, 22, 26, color)
                picture.text(middle, top + 18, f"{count}", ink, 13, "middle", bold=True)
            x += count * bit
        if ignored:
            picture.frame(x + 0.5, top + 0.5, ignored * bit - 2, 25, pale=True)
            picture.text(x + ignored * bit / 2, top + 18, "13 ignored", size=13, align="middle")
        error = "2" + f"−{mantissa + 1}".translate(str.maketrans("−0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        tail = f", error up to {error}" if wide else ""
        picture.text(left, top + 44, words + tail, "soft", 13)
        y = top + (70 if wide else 76)
    x = left
    for color, words in (
        ("soft", "sign"),
        ("ink", "exponent: range"),
        ("grid", "mantissa: precision"),
    ):
        picture.rect(x, y - 11, 12, 12, color)
        picture.text(x + 17, y, words, size=13)
        x += 32 + 7 * len(words)
    return picture.svg(y + 10)
