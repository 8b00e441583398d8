"""Climbs as a page: what report.html says of them in words, and where its marks stand."""

import base64
import hashlib
import math
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

HERE = Path(__file__).parent
# What a log or a script says enters the page as text: the template escapes all it is given.
TEMPLATES = Environment(
    loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)
TEMPLATES.filters["share"] = lambda share: f"{100 * share:.2f}%"
RATIOS = (1, 2, 0.5, 4, 1.5, 0.75, 3, 1.25, 8, 6, 16, 1.1, 0.9, 32, 64)  # where they have room
AXES = {  # of a point (step, seconds, loss) and the first of its curve
    "steps": lambda point, first: point[0],
    "seconds": lambda point, first: point[1],
    "seconds after the first step": lambda point, first: point[1] - first[1],
}


class Scale:
    """Where a value stands between the least and the largest of some, from 0 to 1."""

    def __init__(self, values):
        self.low, self.high = min(values), max(values)

    def __call__(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low or 1)

    def ticks(self, about: int) -> list[tuple[float, str]]:
        """Some `about` round values: where they stand, and as text."""
        rough = (self.high - self.low) / about
        rough = rough if rough > 1e-9 else 1  # all the same: logs have six digits
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
        machines=list(dict.fromkeys(climb["device"] for climb in climbs)),
        compared=compared(climbs),
    )


def verdict(climb: dict) -> tuple[str, str]:
    """What came out, in words, and how sure that is."""
    first, kind = climb["rungs"][0], climb["kind"]
    rungs = [rung for rung in climb["rungs"][1:] if rung["row"].gain]
    if not rungs:
        return f"On {climb['device']}", "Nothing to compare: a gain needs two rungs and two rounds."
    states, of = [rung["state"] for rung in rungs], "gain" if kind.gain_of_first else "total"
    rounds = {rung["row"].gain.rounds for rung in rungs}
    sure = (
        f"Of {len(states)} differences, gains: {states.count('up')}, losses: "
        f"{states.count('down')}, not told from noise: {states.count('noise')} (95 % intervals "
        f"over {' to '.join(map(str, sorted({min(rounds), max(rounds)})))} rounds; about one in "
        "twenty is wrong by chance)."
    )
    if not (rungs := [rung for rung in rungs if getattr(rung["row"], of)]):  # the first failed
        return f"On {climb['device']}", sure
    if not (clear := [rung for rung in rungs if getattr(rung["row"], of).low > 1]):
        return f"Nothing is clearly faster on {climb['device']}", sure
    best = max(clear, key=lambda rung: getattr(rung["row"], of).ratio)
    gain = getattr(best["row"], of)
    fast, slow = (first, best) if kind.gain_of_first else (best, first)
    said = f"{times(gain.ratio)} times as fast as {slow['title']} on {climb['device']}"
    if kind.against != "above":
        said = f"{fast['title']} is {said}"
    steps = [rung for rung in rungs[: rungs.index(best) + 1] if rung["state"] == "up"]
    if kind.against == "above" and len(steps) > 1:
        most = max(steps, key=lambda rung: rung["row"].gain.ratio)
        share = math.log(most["row"].gain.ratio) / math.log(gain.ratio)
        said += f"; {'most' if share > 0.5 else 'the largest part'} of it is {most['title']}"
    rates = f"{fast['row'].tok_per_s:,.0f} tokens per second, not {slow['row'].tok_per_s:,.0f}"
    between = f"{times(gain.low)} to {times(gain.high)} times as many"
    return said, f"The script {fast['title']} trains {rates}: {between}. {sure}"


def times(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio >= 2 else f"{ratio:.2f}"


def ladder(climb: dict) -> dict:
    """The scales of the bars and of the gains, and for each gain its marks on them."""
    most, ceiling = max(rung["row"].tok_per_s or 0 for rung in climb["rungs"]), climb["ceiling"]
    limits = [rung["limit"]["tok_per_s"] for rung in climb["rungs"] if rung["limit"]]
    rows = [rung["row"] for rung in climb["rungs"] if rung["logs"]]
    spreads = {r.stem: [min(r.tok_per_s * side, 2 * most) for side in r.spread] for r in rows}
    # A ceiling or a limit that is further off is told, not drawn.
    near = (one for one in (*limits, ceiling) if one <= 2 * most)
    rate = Scale([0, most, *near, *(fast for _, fast in spreads.values())])
    marks, far = rate.ticks(5), ceiling > 2 * most
    if ceiling and not far:
        at = rate(ceiling)
        marks = [*(mark for mark in marks if abs(mark[0] - at) > 0.25), (at, "ceiling")]
    left_out = climb["ablation"]["rungs"] if climb.get("ablation") else []
    gains = [rung["row"].gain for rung in climb["rungs"] + left_out if rung["row"].gain]
    low = max(0.25, min([0.9, *(gain.low for gain in gains)])) * 0.97
    high = max([4, *(gain.ratio for gain in gains)]) * 1.5
    high = min(high, max([1.1, *(gain.high for gain in gains)])) * 1.03

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
        "far": far,
        "times": times(ceiling / most),
        "limits": bool(limits),
        "marks": marks,
        "x": x,
        "ratios": ratios,
        "alone": {rung["row"].stem.removeprefix("without_"): rung for rung in left_out[1:]},
    }


def losses(climb: dict) -> dict:
    """Curves over each axis, one for all rungs that look the same; three are shown at first."""
    rungs = [rung for rung in climb["rungs"] if rung["curve"]]
    up = Scale([point[2] for rung in rungs for point in rung["curve"]])
    groups = alike(rungs, (up.high - up.low) / 200)
    charts = {}
    for axis, of in AXES.items():
        curves = [[(of(p, g[-1]["curve"][0]), p[2]) for p in g[-1]["curve"]] for g in groups]
        along = Scale([x for curve in curves for x, _ in curve])
        lines = [
            " ".join(f"{999 * along(x):.1f},{999 * (1 - up(y)):.1f}" for x, y in curve)
            for curve in curves
        ]
        charts[axis] = (along.ticks(6), lines)
    return {
        "charts": charts,
        "marks": [(1 - at, text) for at, text in up.ticks(5)],
        "names": [(g[-1]["title"], ", ".join(rung["title"] for rung in g[:-1])) for g in groups],
        "hues": [round(265 - 245 * k / max(len(groups) - 1, 1)) for k in range(len(groups))],
        "first": {0, len(groups) // 2, len(groups) - 1},
    }


def alike(rungs: list[dict], width: float) -> list[list[dict]]:
    """Rungs in groups whose curves are nowhere further apart than a line is wide."""
    groups = []
    for rung in rungs:
        for group in groups:
            pairs = zip(group[0]["curve"], rung["curve"], strict=True)
            if all(abs(a[2] - b[2]) <= width for a, b in pairs):
                group.append(rung)
                break
        else:
            groups.append([rung])
    return groups


def compared(climbs: list[dict]) -> dict[str, tuple]:
    """Where there are several climbs of a kind, by the heading of their gains: these climbs, and a
    line for each script and what it was measured against, for other gains do not compare."""
    found = {}
    for heading in dict.fromkeys(climb["kind"].compared for climb in climbs):
        some = [climb for climb in climbs if climb["kind"].compared == heading]
        if heading and len(some) > 1:
            lines = {}
            for k, climb in enumerate(some):
                for rung in (rung for rung in climb["rungs"] if rung["base"]):
                    key = rung["title"], rung["base"]["title"]
                    lines.setdefault(key, {})[k] = rung
            found[heading] = (some, sorted(lines.items()))
    return found
