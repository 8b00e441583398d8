"""Climbs as a page: what report.html says of them in words, and where its marks stand."""

import base64
import hashlib
import math
from pathlib import Path

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

HERE = Path(__file__).parent
# What a log or a script says enters the page as text: the template escapes all it is given.
TEMPLATES = Environment(
    loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)
TEMPLATES.filters["share"] = lambda share: f"{100 * share:.2f}%"
RATIOS = (1, 2, 0.5, 4, 1.5, 0.75, 3, 1.25, 8, 6, 16, 1.1, 0.9, 32, 64)  # where they have room
AXES = {  # of a curve: a row (number, seconds, loss) for each step
    "steps": lambda curve: curve[:, 0],
    "seconds": lambda curve: curve[:, 1].cumsum(),
    "seconds after the first step": lambda curve: curve[:, 1].cumsum() - curve[0, 1],
}


class Scale:
    """Where a value stands between the least and the largest of some, from 0 to 1."""

    def __init__(self, values):
        self.low, self.high = float(np.min(values)), float(np.max(values))

    def __call__(self, value):
        return (value - self.low) / (self.high - self.low or 1)

    def ticks(self, about: int) -> list[tuple[float, str]]:
        """Some `about` round values: where they stand, and as text."""
        rough = max((self.high - self.low) / about, 1e-6)  # logs have six digits
        power = 10 ** math.floor(math.log10(rough))
        step = next(k * power for k in (1, 2, 5, 10) if k * power >= rough)
        values = range(math.ceil(self.low / step), math.floor(self.high / step) + 1)
        return [(self(k * step), f"{k * step:,g}") for k in values]


def page(climbs: list[dict], made: str) -> str:
    """The whole page."""
    style, script = (HERE.joinpath(f"report.{kind}").read_text("utf-8") for kind in ("css", "js"))
    for climb in climbs:
        climb |= {"verdict": verdict(climb), "ladder": ladder(climb), "losses": losses(climb)}
    return TEMPLATES.get_template("report.html").render(
        climbs=climbs,
        made=made,
        style=style,
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def verdict(climb: dict) -> tuple[str, str]:
    """What came out, in words, and how sure that is."""
    first, kind, device = climb["rungs"][0], climb["kind"], climb["run"]["device"]
    rungs = [rung for rung in climb["rungs"][1:] if rung["row"].gain]
    if not rungs:
        return f"On {device}", "Nothing to compare: a gain needs two rungs."
    states, rounds = [rung["state"] for rung in rungs], max(r["row"].gain.rounds for r in rungs)
    no_intervals = all(rung["row"].gain.low is None for rung in rungs)
    sure = (
        f"Of {len(states)} differences, significant gains: {states.count('up')}, losses: "
        f"{states.count('down')} (95 % intervals over {rounds} rounds; about one in twenty "
        "stands out by chance)."
    )
    if no_intervals:
        sure = f"Rounds: {rounds}. From three on, gains have intervals."
    of = "gain" if kind.against == "first" else "total"
    found = [(gain, rung) for rung in rungs if (gain := getattr(rung["row"], of))]
    clear = [one for one in found if one[0].significant or no_intervals]
    gain, best = max(clear, key=lambda one: one[0].ratio, default=(None, None))
    if not gain or gain.ratio <= 1:
        return f"No significant gain on {device}" if found else f"On {device}", sure
    fast, slow = (first, best) if kind.against == "first" else (best, first)
    said = f"{fast['title']} is {times(gain.ratio)} times as fast as {slow['title']} on {device}"
    rates = f"{fast['row'].tok_per_s:,.0f} tokens per second, not {slow['row'].tok_per_s:,.0f}"
    if gain.low:
        rates += f": {times(gain.low)} to {times(gain.high)} times as many"
    return said, f"The script {fast['title']} trains {rates}. {sure}"


def times(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio >= 2 else f"{ratio:.2f}"


def ladder(climb: dict) -> dict:
    """The scales of the bars and of the gains, and for each gain its marks on them."""
    rows = [rung["row"] for rung in climb["rungs"] if rung["logs"]]
    most = max(row.tok_per_s for row in rows)
    rooflines = {r.stem: r.tok_per_s * r.ms / sum(r.roofline) for r in rows if r.roofline}
    near = {stem: one for stem, one in rooflines.items() if one <= 2 * most}  # has room
    spreads = {r.stem: [min(r.tok_per_s * side, 2 * most) for side in r.spread] for r in rows}
    rate = Scale([0, most, *near.values(), *(fast for _, fast in spreads.values())])
    left_out = climb["ablation"]["rungs"] if climb["ablation"] else []
    gains = [rung["row"].gain for rung in climb["rungs"] + left_out if rung["row"].gain]
    bounds = [one for gain in gains for one in (gain.low, gain.ratio, gain.high) if one]
    low = max(0.25, min([0.9, *bounds])) * 0.97
    high = min(1.5 * max([4, *(gain.ratio for gain in gains)]), max([1.1, *bounds])) * 1.03

    def x(ratio: float) -> float:
        return math.log(min(max(ratio, low), high) / low) / math.log(high / low)

    ratios = []
    for one in (ratio for ratio in RATIOS if low < ratio < high):
        if all(abs(x(one) - at) > 0.16 for at, _ in ratios):
            text = f"{100 * one - 100:+.0f} %".replace("-", "−")
            ratios.append((x(one), text if one != 1 else "0"))
    return {
        "rate": rate,
        "spreads": {stem: [rate(side) for side in both] for stem, both in spreads.items()},
        "rooflines": {stem: rate(one) for stem, one in near.items()},
        "marks": rate.ticks(5),
        "x": x,
        "ratios": ratios,
        "alone": {rung["row"].stem.removeprefix("without_"): rung for rung in left_out[1:]},
    }


def losses(climb: dict) -> dict:
    """Curves over each axis, one for all rungs that look the same: that of the last of them."""
    rungs = [rung for rung in climb["rungs"] if rung["logs"]]
    steps = [[(s["step"], s["dt"], s["loss"]) for s in rung["row"].log.steps] for rung in rungs]
    curves = np.array(steps)  # (rungs, steps, 3)
    up, groups = Scale(curves[:, :, 2]), []
    for k, curve in enumerate(curves):
        width = (up.high - up.low) / 200  # of a line
        same = [g for g in groups if abs(curves[g[0]] - curve)[:, 2].max() <= width]
        same[0].append(k) if same else groups.append([k])
    shown, charts = [curves[group[-1]] for group in groups], {}
    for axis, of in AXES.items():
        along = Scale([of(curve) for curve in shown])
        points = [zip(along(of(curve)), 1 - up(curve[:, 2]), strict=True) for curve in shown]
        lines = [" ".join(f"{999 * x:.1f},{999 * y:.1f}" for x, y in curve) for curve in points]
        charts[axis] = (along.ticks(6), lines)
    marks = [(1 - at, text) for at, text in up.ticks(5)]
    names = [[rungs[k]["title"] for k in group] for group in groups]
    return {"charts": charts, "marks": marks, "names": names}
