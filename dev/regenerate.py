"""Make every generated file again: run it before you commit.

    python dev/regenerate.py

The counts of each script whose code has changed (ladder/measure/work.json), the blocks between
markers in README.md and RUNLOG.md, docs/index.html, and the pictures in docs/. It takes seconds,
and up to two minutes if all scripts have changed. A rung of the ten that no climb has yet gets a
row without a gain.
"""

import re
import sys
from pathlib import Path

from blocks import machine_of, machines, render
from count_work import count_changed
from matplotlib import pyplot as plt
from site_page import site_sections

from ladder.cli import Parser
from ladder.commands.main import program
from ladder.files import ROOT, require_own, write_atomic
from ladder.machine import find_gpu
from ladder.measure.docstrings import title
from ladder.measure.scripts import number_of, rungs
from ladder.measure.work import LABELS, PARTS, roofline_ms, work
from ladder.show.page import page
from ladder.show.reported import reported_climb, reported_gpus

# ------------------------------------------------------------------ docs/staircase.png

COLORS = ("#2f6f9f", "#e08a1e", "#8fb8d0", "#7a9a5b")
DOT = "#c8385a"


def draw_staircase():
    """Stacked milliseconds of each rung, from top to bottom, and the reported times as dots."""
    gpu = find_gpu("NVIDIA A100-SXM4-80GB")
    lecture = reported_climb()
    plt.rcParams.update({"font.size": 12})
    figure, axes = plt.subplots(figsize=(9, 6), dpi=110, layout="constrained")
    names = []
    for y, path in enumerate(rungs()):
        names.append(title(path))
        parts = roofline_ms(work(16)[path.stem], gpu._asdict())
        left = 0.0
        for part, color in zip(parts, COLORS, strict=True):
            axes.barh(y, part, left=left, height=0.72, color=color)
            left += part
        text = f"{left:.0f} calculated"
        reported = lecture["ms"].get(f"{number_of(path):02}")
        if reported:
            axes.plot(reported, y, "o", color=DOT, markersize=9, zorder=3)
            text = f"{reported} reported, {text}"
        axes.text(max(left, reported or 0) + 22, y, text, va="center")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1480)
    axes.set_xlabel("milliseconds a step: GPT-2 124M, one A100 80GB, B=16, T=1024")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    bars = [plt.Rectangle((0, 0), 1, 1, color=color) for color in COLORS]
    dot = plt.Line2D([], [], marker="o", ls="", color=DOT, markersize=9)
    legend = axes.legend(
        [*bars, dot],
        [*LABELS, "Karpathy's lecture, rounded"],
        loc="lower right",
        title="Bars are CALCULATED: the roofline,\nat the rates of the data sheet.\n"
        "Dots are REPORTED elsewhere.\nNothing here was measured by us.",
        alignment="left",
        borderpad=0.8,
    )
    legend.get_title().set_fontweight("bold")
    figure.savefig(ROOT / "docs" / "staircase.png")


# ------------------------------------------------------------------ docs/roofline.png


def draw_roofline():
    """Bars of the gigabytes that a step of each rung moves on a GPU, stacked by part."""
    steps = work(16)
    names = [title(path) for path in rungs()]
    figure, axes = plt.subplots(figsize=(9, 4), layout="tight")
    left = [0.0] * len(steps)
    for part, label in zip(PARTS, LABELS, strict=True):
        widths = [step[f"{part}_bytes"] / 1e9 for step in steps.values()]
        axes.barh(names, widths, left=left, label=label)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("gigabytes read and written in one step, B=16, T=1024: counted, not measured")
    axes.legend()
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(ROOT / "docs" / "roofline.png", dpi=110)


# ------------------------------------------------------------------ docs/cards.png

HERE, STEPS, END = "#c8385a", "#e08a1e", "#2f6f9f"
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
    for name in ("README.md", "RUNLOG.md"):
        path = ROOT / name
        write_atomic(path, render(path.read_text(encoding="utf-8")).encode())
    write_atomic(ROOT / "docs" / "index.html", page(site_sections(), made="").encode())
    for draw in (draw_staircase, draw_roofline, draw_cards):
        with plt.rc_context({"font.family": "DejaVu Sans"}):
            draw()
    print("done: git status says what has changed")


if __name__ == "__main__":
    raise SystemExit(program(run, sys.argv[1:]))
