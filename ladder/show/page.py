"""Climbs and the story of the ladder as a page: the words of report.html, and where marks stand."""

import base64
import hashlib
import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from ladder.measure.losses import smooth_losses
from ladder.measure.stats import MIN_ROUNDS
from ladder.show import colors

HERE = Path(__file__).parent
# What a log or a script says enters the page as text: the template escapes all it is given.
TEMPLATES = Environment(
    loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)
HIGHEST_GAIN = 400  # per cent; an interval that reaches beyond is cut


@dataclass
class Scale:
    """An axis from `low` to `high`."""

    low: float
    high: float

    def at(self, value):
        """Where a value, or each of an array, stands on the axis: from 0 to 1."""
        return (value - self.low) / (self.high - self.low or 1)

    def ticks(self, about: int) -> list[tuple[float, str]]:
        """At most `about` + 1 round values: where they stand, and as text."""
        span = self.high - self.low or 1
        step = 10 ** math.floor(math.log10(span / about))
        for factor in (1, 2, 5, 10):
            if span / (factor * step) <= about:
                step *= factor
                break
        marks = []
        for k in range(math.ceil(self.low / step), math.floor(self.high / step) + 1):
            marks.append((self.at(k * step), f"{k * step:,g}"))
        return marks


def page(sections: list[dict], made: str) -> str:
    """The whole page; `made` says when, and may be empty.

    A section shows the story of the ladder (`learn`), a climb or training runs.
    """
    learn = None
    others = []
    for section in sections:
        if section["shows"] == "learn":
            learn = section
            continue
        others.append(section)
        if section["shows"] == "climb":
            section["headline"], section["certainty"] = verdict(section)
            section["ladder"] = ladder(section)
            section["losses"] = losses(section["rungs"])
    script = HERE.joinpath("report.js").read_text("utf-8")
    return TEMPLATES.get_template("report.html").render(
        learn=learn,
        others=others,
        made=made,
        colors=colors,
        style=HERE.joinpath("report.css").read_text("utf-8"),
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        spread=spread,
        svg=svg,
    )


def prose(text: str) -> Markup:
    """A docstring's text, escaped; what stands between backticks is code."""
    return Markup(re.sub("`(.+?)`", r"<code>\1</code>", str(escape(text))))


def opening(text: str) -> tuple[str, str]:
    """The first three sentences of a text, and the rest."""
    sentences = re.split(r"(?<=\.) (?=[A-Z])", text)
    return " ".join(sentences[:3]), " ".join(sentences[3:])


def share(part: float) -> str:
    """A part of 1 as a width or a place in CSS."""
    return f"{100 * part:.2f}%"


TEMPLATES.filters.update(prose=prose, opening=opening, share=share)


def verdict(section: dict) -> tuple[str, str]:
    """What came out of the top rung, in words, and how sure that is."""
    device = section["run"]["device"]
    rungs = [rung for rung in section["rungs"] if rung["row"].gain]
    if not rungs:
        return f"On {device}", "Nothing to compare: a gain needs two rungs, at one B."
    rounds = max(rung["row"].gain.rounds for rung in rungs)
    if rounds < MIN_ROUNDS:
        return f"On {device}", f"Rounds: {rounds}. From three on, gains have intervals."
    states = [rung["state"] for rung in rungs]
    certainty = (
        f"Of {len(states)} differences, significant gains: {states.count('up')}, losses: "
        f"{states.count('down')} (after Holm's correction over all rows; {rounds} rounds)."
    )
    fast, slow, gain = comparison(section, rungs)
    if not gain or not gain.significant:
        name = f"{fast['title']} over {slow['title']}"
        return f"No significant difference on {device}: {name}", certainty
    said = f"{fast['title']} is {times(gain.value)} times as fast as {slow['title']} on {device}"
    certainty = (
        f"The script {fast['title']} trains {fast['row'].tok_per_s:,.0f} tokens per second, not "
        f"{slow['row'].tok_per_s:,.0f}: {times(gain.low)} to {times(gain.high)} times as many. "
        f"{certainty}"
    )
    return said, certainty


def comparison(section: dict, rungs: list[dict]) -> tuple:
    """The top rung, the one it is compared with, and its gain over that."""
    first = section["rungs"][0]
    if section["comparison"].against == "top":  # climb --without: the first row is the top
        clear = [rung for rung in rungs if rung["row"].gain.significant]
        without = max(clear or rungs, key=lambda rung: rung["row"].gain.value)
        return first, without, without["row"].gain
    top = rungs[-1]
    return top, first, top["row"].total


def times(ratio: float) -> str:
    """A ratio with two digits."""
    return f"{ratio:.1f}" if ratio >= 2 else f"{ratio:.2f}"


def ladder(section: dict) -> dict:
    """The scales of the bars and of the gains, and where their marks stand."""
    alone = {}
    rows = [*section["rows"]]
    if section["without"]:
        for rung in section["without"]["rungs"][1:]:
            alone[rung["row"].name.removeprefix("without_")] = rung
            rows.append(rung["row"])
    return bars(section["rows"]) | gain_axis(rows) | {"alone": alone}


def bars(rows: list) -> dict:
    """The scale of the rates, with the spread and the roofline of each row on it."""
    longest = 0
    for row in rows:
        if row.logs:
            longest = max(longest, spread(row)[1])
    highest = longest
    rooflines = {}
    for row in rows:
        if row.roofline:
            roofline = row.tok_per_s * row.ms / sum(row.roofline)
            if roofline <= 2 * longest:  # else it has no room
                rooflines[row.name] = roofline
                highest = max(highest, roofline)
    rate = Scale(0, highest)
    return {"rate": rate, "marks": rate.ticks(5), "rooflines": rooflines}


def spread(row) -> tuple[float, float]:
    """The tok/s of a row at its 90th percentile (a tenth of the steps is slower) and its 10th."""
    slow = min(1, row.ms / row.p90_ms)
    fast = max(1, row.ms / row.p10_ms)
    return row.tok_per_s * slow, row.tok_per_s * fast


def gain_axis(rows: list) -> dict:
    """The scale of the gains in per cent, as a function of a ratio, and its ticks."""
    values = [-10, 10]
    for row in rows:
        if row.gain:
            for ratio in (row.gain.value, row.gain.low or 1, row.gain.high or 1):
                values.append(min(100 * ratio - 100, HIGHEST_GAIN))
    scale = Scale(min(values), max(values))

    def x(ratio: float) -> float:
        return scale.at(min(100 * ratio - 100, HIGHEST_GAIN))

    return {"x": x, "ticks": scale.ticks(8)}


def losses(rungs: list[dict]) -> dict:
    """The loss of each rung as a line and a band over three axes, and the ticks of these."""
    ran = [rung for rung in rungs if rung["row"].logs]
    loss = np.array([loss_curves(rung["row"]) for rung in ran])  # (rungs, 3, points)
    seconds = column(ran, "dt_ms").cumsum(axis=1) / 1e3
    axes = {
        "steps": column(ran, "step"),
        "seconds": seconds,
        "seconds after the first step": seconds - seconds[:, :1],
    }
    up = Scale(loss.min(), loss.max())
    charts = {}
    for name, values in axes.items():
        values = values[:, -loss.shape[2] :]  # a running mean begins later
        along = Scale(values.min(), values.max())
        drawn = []
        for x, (mean, low, high) in zip(along.at(values), up.at(loss), strict=True):
            band = f"{polyline(x, low)} {polyline(x[::-1], high[::-1])}"
            drawn.append((polyline(x, mean), band))
        charts[name] = along.ticks(6), drawn
    marks = [(1 - at, text) for at, text in up.ticks(5)]
    return {"charts": charts, "marks": marks, "names": [rung["title"] for rung in ran]}


def loss_curves(row) -> np.ndarray:
    """The mean of the rounds, the lowest of them and the highest, at each step: (3, points)."""
    rounds = np.array([smooth_losses(log) for log in row.logs.values()])
    return np.array([rounds.mean(axis=0), rounds.min(axis=0), rounds.max(axis=0)])


def column(rungs: list[dict], key: str) -> np.ndarray:
    """One value of the step lines of each rung's first run: (rungs, steps)."""
    values = []
    for rung in rungs:
        values.append([step[key] for step in rung["row"].log.steps])
    return np.array(values)


def svg(x: np.ndarray, y: np.ndarray) -> str:
    """A curve where y is finite."""
    return polyline(x[np.isfinite(y)], y[np.isfinite(y)])


def polyline(along: np.ndarray, up: np.ndarray) -> str:
    """A curve as SVG writes it, from where its points stand on both axes."""
    return " ".join(f"{999 * x:.1f},{999 * (1 - y):.1f}" for x, y in zip(along, up, strict=True))
