"""Draws docs/cards.png: tokens per second, measured here and reported elsewhere.

Run it from the root: python dev/draw_cards.py
"""

from matplotlib import pyplot as plt

from ladder.files import ROOT
from ladder.measure.rows import read_climb
from ladder.show.reported import reported_climb, reported_gpus

HERE, STEPS, END = "#c8385a", "#e08a1e", "#2f6f9f"
CLIMBS = {
    "Intel Xeon with AMX, B=4": "2026-11-23-intel-xeon-amx-2-threads-climb",
    "AMD EPYC, B=4": "2026-11-24-amd-epyc-2-threads-climb-2",
}
LEGEND = {
    END: "reported elsewhere: twenty GPUs, nearly rung 10, each at its best B",
    STEPS: "reported elsewhere: Karpathy's lecture, FP32 to fused AdamW",
    HERE: "measured here: baseline to rung 12, CPUs of 2 threads, T=256",
}


def rows() -> list[tuple[str, str, list[float]]]:
    """Label, colour and tokens per second, slowest card first."""
    best = {}
    for row in reported_gpus():
        best[row["gpu"]] = max(row["tok_per_s"], best.get(row["gpu"], 0))
    table = [(gpu, END, [rate]) for gpu, rate in best.items()]
    times = reported_climb()["ms"].values()
    table.append(("A100 80GB, B=16, step by step", STEPS, [16 * 1024 / ms * 1e3 for ms in times]))
    for label, folder in CLIMBS.items():
        climb = read_climb(ROOT / "logs" / folder)[1]
        table.append((label, HERE, [climb[0].tok_per_s, climb[-1].tok_per_s]))
    return sorted(table, key=lambda row: row[2][-1])


def rounded(rate: float) -> str:
    """Three digits, such as `182,000`."""
    return f"{float(f'{rate:.3g}'):,.0f}"


def draw():
    """One row a device on a logarithmic axis; each kind of number has its mark."""
    plt.rcParams.update({"font.family": "DejaVu Sans", "font.size": 10.5})
    figure, axes = plt.subplots(figsize=(9, 6.4), dpi=100, layout="constrained")
    table = rows()
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
    axes.set_xlim(100, 5e6)
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


if __name__ == "__main__":
    draw()
