"""Make every generated file again: run it before you commit.

    python dev/regenerate.py

The counts of each script whose code has changed (ladder/measure/work.json), the blocks between
markers in README.md, RUNLOG.md and docs/your-card.md, docs/index.html, and the pictures in docs/.
It takes seconds, and up to two minutes if all scripts have changed. A rung of the ten that no climb
has yet gets a row without a gain.
"""

import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from blocks import A100, B, machine_of, machines, render
from count_work import count_changed
from matplotlib import pyplot as plt
from site_page import GPU, site_sections
from step_picture import step_picture

from ladder.cli import Parser
from ladder.commands.main import program
from ladder.files import ROOT, require_own, write_atomic
from ladder.machine import find_gpu
from ladder.measure.climb import log_texts
from ladder.measure.docstrings import title
from ladder.measure.rates import rates_of
from ladder.measure.scripts import number_of, rungs
from ladder.measure.work import LABELS, roofline_ms, work
from ladder.show.colors import PARTS, REPORTED
from ladder.show.page import page
from ladder.show.reported import reported_climb, reported_gpus
from ladder.show.training import gather_run, panel

# ------------------------------------------------------------------ docs/staircase.png

SHOWN = ("00", "02", "03", "05", "06", "10")  # the rungs with a reported time of their own, but 07


def draw_staircase():
    """Left the reported milliseconds of six rungs, right the calculated share of each part."""
    gpu = find_gpu(A100)
    reported = reported_climb()["ms"]
    plt.rcParams.update({"font.size": 10.5})
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(9, 4), dpi=150, width_ratios=(1, 1.55), sharey=True, layout="constrained"
    )
    scripts = [path for path in rungs() if f"{number_of(path):02}" in SHOWN]
    for y, path in enumerate(scripts):
        ms = reported[f"{number_of(path):02}"]
        left.barh(y, ms, height=0.62, color=REPORTED)
        left.text(ms + 20, y, f"{ms} ms", va="center")
        parts = roofline_ms(work(B)[path.stem], rates_of(gpu))
        start = 0.0
        for part, color, name in zip(parts, PARTS, LABELS, strict=True):
            share = part / sum(parts)
            label = name if y == 0 else None
            right.barh(
                y, share, left=start, height=0.62, color=color, edgecolor="white", label=label
            )
            if share > 0.05:
                middle = start + share / 2
                ink = "black" if color == PARTS[2] else "white"
                right.text(middle, y, f"{part:.0f}", ha="center", va="center", color=ink)
            start += share
        right.text(1.02, y, f"{sum(parts):.0f} ms", va="center")
    left.set_yticks(range(len(scripts)), [title(path) for path in scripts])
    left.invert_yaxis()
    left.set_xlim(0, 1330)
    right.set_xlim(0, 1.14)
    left.set_title("reported: ms a step, one A100", loc="left", fontsize=10.5)
    right.set_title(
        "calculated, at best: share of each part (numbers: ms)", loc="left", fontsize=10.5
    )
    for axes in (left, right):
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        axes.set_xticks([])
    figure.legend(loc="outside lower center", ncols=4, frameon=False, handlelength=1.2)
    figure.savefig(ROOT / "docs" / "staircase.png")


# ------------------------------------------------------------------ docs/curve.png

TRAINED = ROOT / "logs" / "2026-11-25-amd-epyc-1-thread-train-tiny"


def draw_curve():
    """The losses of the one training run that is published."""
    with TemporaryDirectory() as folder:
        for name, text in log_texts(TRAINED).items():
            Path(folder, f"{name}.log").write_text(text, encoding="utf-8")
        run = gather_run(Path(folder))
    lines = panel([run], [], "million tokens", "loss").lines
    named = {"thin": "training, each step", "mean": "training, running mean"}
    named["val"] = "validation, on held-out text"
    colors = {"thin": PARTS[2], "mean": PARTS[0], "val": REPORTED}
    plt.rcParams.update({"font.size": 10.5})
    figure, axes = plt.subplots(figsize=(9, 3), dpi=110, layout="constrained")
    for kind, _, x, y in lines:
        width = 0.6 if kind == "thin" else 2
        axes.plot(x * 1000, y, color=colors[kind], linewidth=width, label=named[kind])
    axes.set_xlabel("thousand tokens: model tiny, measured here on one thread of an AMD EPYC")
    axes.set_ylabel("loss")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(ROOT / "docs" / "curve.png")


# ------------------------------------------------------------------ docs/cards.png

HERE, STEPS, END = PARTS[0], PARTS[1], REPORTED
LEGEND = {
    END: "reported elsewhere: twenty GPUs, nearly rung 10, each at its best B",
    STEPS: "reported elsewhere: Karpathy's lecture, FP32 to fused AdamW",
    HERE: "measured here, on CPUs: from the baseline to the last rung",
}


def cards() -> list[tuple[str, str, list[float]]]:
    """Label, colour and tokens per second, slowest card first."""
    best = {}
    for row in reported_gpus():
        best[row["gpu"]] = max(row["tok_per_s"], best.get(row["gpu"], 0))
    table = [(gpu, END, [rate]) for gpu, rate in best.items()]
    times = reported_climb()["ms"].values()
    table.append(("A100 80GB, B=16, step by step", STEPS, [16 * 1024 / ms * 1e3 for ms in times]))
    for machine in machines():
        label = re.sub(r"\(.*?\)| Processor", "", machine_of([*machine.ran.values()]))
        label = label.replace(" ,", ",")
        table.append((label, HERE, [machine.ran[0].tok_per_s, machine.tok_per_s]))
    return sorted(table, key=lambda row: row[2][-1])


def rounded(rate: float) -> str:
    """Three digits, such as `182,000`."""
    return f"{float(f'{rate:.3g}'):,.0f}"


def draw_cards():
    """One row a device on a logarithmic axis; each kind of number has its mark."""
    plt.rcParams.update({"font.size": 10.5})
    figure, axes = plt.subplots(figsize=(10, 6.4), dpi=100, layout="constrained")
    table = cards()
    for y, (_, color, rates) in enumerate(table):
        first = rates[0]
        last = rates[-1]
        text = f"{rounded(first)} to {rounded(last)}  ({last / first:.2g}×)"
        if color == HERE:
            axes.barh(y, last - first, left=first, height=0.6, color=color)
        elif color == STEPS:
            axes.plot(rates, [y] * len(rates), "D-", color=color, markersize=5)
        else:
            text = rounded(last)
            axes.plot(last, y, "o", color=color, markersize=7)
        axes.text(max(rates) * 1.18, y, text, va="center", color=color)
    axes.set_xscale("log")
    axes.set_xlim(min(min(rates) for *_, rates in table) * 0.7, 8e6)
    axes.set_ylim(-0.7, len(table) - 0.3)
    axes.set_yticks(range(len(table)), [label for label, *_ in table])
    ticks = [1e2, 1e3, 1e4, 1e5, 1e6]
    axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
    axes.set_xlabel("tokens per second, GPT-2 124M (logarithmic; T=1024 unless said)")
    axes.grid(axis="x", color="#dddddd")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(which="both", length=0)
    marks = {END: dict(marker="o", ls=""), STEPS: dict(marker="D"), HERE: dict(lw=8)}
    lines = [plt.Line2D([], [], color=color, **mark) for color, mark in marks.items()]
    axes.legend(lines, [LEGEND[color] for color in marks], loc="upper left", fontsize=8.5)
    figure.savefig(ROOT / "docs" / "cards.png")


# ------------------------------------------------------------------ all of it


def run(argv: list[str]):
    Parser(__doc__).parse_args(argv)
    require_own(Path(__file__), "regenerate.py is in", "PYTHONPATH={}")
    count_changed()
    for name in ("README.md", "RUNLOG.md", "docs/your-card.md"):
        path = ROOT / name
        write_atomic(path, render(path.read_text(encoding="utf-8")).encode())
    write_atomic(ROOT / "docs" / "index.html", page(site_sections(), made="").encode())
    write_atomic(ROOT / "docs" / "step.svg", step_picture(GPU, B).encode())
    for draw in (draw_staircase, draw_curve, draw_cards):
        with plt.rc_context({"font.family": "DejaVu Sans"}):
            draw()
    print("done: git status says what has changed")


if __name__ == "__main__":
    raise SystemExit(program(run, sys.argv[1:]))
