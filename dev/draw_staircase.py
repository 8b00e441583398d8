"""Draws docs/staircase.png: a step of rungs 00 to 10 on one A100 80GB, calculated and reported.

Run it from the root: python dev/draw_staircase.py
"""

from matplotlib import pyplot as plt

from ladder.files import ROOT
from ladder.machine import find_gpu
from ladder.measure.scripts import all_scripts
from ladder.measure.work import LABELS, roofline_ms, work
from ladder.show.docstrings import title
from ladder.show.reported import reported_climb

COLORS = ("#2f6f9f", "#e08a1e", "#8fb8d0", "#7a9a5b")
DOT = "#c8385a"


def draw():
    """Stacked milliseconds of each rung, from top to bottom, and the reported times as dots."""
    gpu = find_gpu("NVIDIA A100-SXM4-80GB")
    lecture = reported_climb()
    plt.rcParams.update({"font.family": "DejaVu Sans", "font.size": 12})
    figure, axes = plt.subplots(figsize=(9, 6), dpi=110, layout="constrained")
    names = []
    for y, path in enumerate(all_scripts()[:11]):
        names.append(title(path))
        parts = roofline_ms(work(16)[path.stem], gpu._asdict())
        left = 0.0
        for part, color in zip(parts, COLORS, strict=True):
            axes.barh(y, part, left=left, height=0.72, color=color)
            left += part
        text = f"{left:.0f} calculated"
        number = "00" if path.stem == "baseline" else path.stem[:2]
        reported = lecture["ms"].get(number)
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


if __name__ == "__main__":
    draw()
