"""A climb as the page shows it: what came out, in words, and where each mark stands."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from ladder.measure.losses import smooth_losses
from ladder.measure.rows import Row
from ladder.measure.stats import MIN_ROUNDS
from ladder.show.draw import Scale, Tick, between, hue, share, svg
from ladder.show.gather import ClimbSection, MeasuredRung

HIGHEST_GAIN = 400  # per cent; an interval that reaches beyond is cut
LONGEST_TIME = 2  # times the first rung's, to its loss; as well


@dataclass
class Mark:
    """A gain on the axis of gains: a dot, and its interval if it has one, as CSS writes them."""

    kind: str  # `alone`: left out of the top rung; `up` or `down`
    dot: str
    interval: str | None


@dataclass
class DrawnRow:
    """A row of a climb on the page. One that has not run has no bars, but `why`."""

    id: str
    rung: MeasuredRung
    alone: MeasuredRung | None  # of the climb --without beside it
    alone_id: str
    rate: str = ""  # tokens per second
    bar: str = ""
    spread: str = ""
    roofline: str | None = None  # None if it is unknown, or has no room
    marks: list[Mark] = field(default_factory=list)
    said: str = ""  # its gain, without the interval
    why: str = ""


@dataclass
class Curve:
    """The training loss of a rung, and a band that the rounds reach over."""

    title: str
    hue: int
    line: str
    band: str
    shown: bool  # at first


@dataclass
class Chart:
    """The losses of a climb over one axis."""

    axis: str
    ticks: list[Tick]
    curves: list[Curve]


@dataclass
class Time:
    """A rung's time to the loss of the first, as a factor of its time."""

    title: str
    bar: str | None
    interval: str | None
    text: str


@dataclass
class DrawnClimb:
    """All that the page says and draws of one climb."""

    shows: ClassVar[str] = "climb"
    section: ClimbSection
    id: str
    label: str
    headline: str
    certainty: str
    gain_heading: str  # empty without gains
    rate_ticks: list[Tick]
    gain_ticks: list[Tick]
    rates: str  # whose rates a roofline is at
    rows: list[DrawnRow]
    has_rooflines: bool
    longest: float  # the longest roofline of a step, in milliseconds
    loss_ticks: list[Tick]
    charts: list[Chart]
    times: list[Time]
    first: str  # the title of the first rung
    top: str  # that of the top rung, of which the climb --without leaves one thing out
    facts: list[tuple[str, str]]


def draw_climb(section: ClimbSection) -> DrawnClimb:
    """All that the page says and draws of a climb."""
    headline, certainty = verdict(section)
    rows, rate, gains = draw_rows(section)
    comparison = section.climb.comparison
    ran = [rung for rung in section.rungs if rung.row.logs]
    charts, loss_ticks = draw_losses(ran)
    return DrawnClimb(
        section=section,
        id=section.id,
        label=section.label,
        headline=headline,
        certainty=certainty,
        gain_heading=comparison.gain_heading,
        rate_ticks=rate.ticks(5),
        gain_ticks=gains.ticks(8) if comparison.gain_heading else [],
        rates="measured here" if section.climb.device_type == "cpu" else "that owners measured",
        rows=rows,
        has_rooflines=any(row.roofline for row in rows),
        longest=max(sum(rung.roofline.values()) for rung in section.rungs),
        loss_ticks=loss_ticks,
        charts=charts,
        times=draw_times(section.rungs),
        first=section.rungs[0].title,
        top=section.without.rungs[0].title if section.without else "",
        facts=facts(section),
    )


def verdict(section: ClimbSection) -> tuple[str, str]:
    """What came out of the top rung, in words, and how sure that is."""
    device = section.run["device"]
    rungs = [rung for rung in section.rungs if rung.row.gain]
    if not rungs:
        return f"On {device}", "Nothing to compare: a gain needs two rungs, at one B."
    rounds = max(rung.row.gain.rounds for rung in rungs)
    if rounds < MIN_ROUNDS:
        return f"On {device}", f"Rounds: {rounds}. From three on, gains have intervals."
    states = [rung.state for rung in rungs]
    certainty = (
        f"Of {len(states)} differences, significant gains: {states.count('up')}, losses: "
        f"{states.count('down')} (after Holm's correction over all rows; {rounds} rounds)."
    )
    fast, slow, gain = comparison(section, rungs)
    if not gain or not gain.significant:
        name = f"{fast.title} over {slow.title}"
        return f"No significant difference on {device}: {name}", certainty
    said = f"{fast.title} is {times(gain.value)} times as fast as {slow.title} on {device}"
    certainty = (
        f"The script {fast.title} trains {fast.row.tok_per_s:,.0f} tokens per second, not "
        f"{slow.row.tok_per_s:,.0f}: {times(gain.low)} to {times(gain.high)} times as many. "
        f"{certainty}"
    )
    return said, certainty


def comparison(section: ClimbSection, rungs: list[MeasuredRung]) -> tuple:
    """The top rung, the one it is compared with, and its gain over that."""
    first = section.rungs[0]
    if section.climb.comparison.against == "top":  # --without: the first row is the top
        clear = [rung for rung in rungs if rung.row.gain.significant]
        without = max(clear or rungs, key=lambda rung: rung.row.gain.value)
        return first, without, without.row.gain
    top = rungs[-1]
    return top, first, top.row.total


def times(ratio: float) -> str:
    """A ratio with two digits."""
    return f"{ratio:.1f}" if ratio >= 2 else f"{ratio:.2f}"


def draw_rows(section: ClimbSection) -> tuple[list[DrawnRow], Scale, Scale]:
    """The rows of a climb, the scale of their rates, and that of their gains in per cent."""
    alone = {}
    if section.without:
        for rung in section.without.rungs[1:]:
            alone[rung.stem.removeprefix("without_")] = rung
    ran = [row for row in section.rows if row.logs]
    longest = max(spread(row)[1] for row in ran)
    rooflines = {}
    for row in ran:
        if row.roofline:
            roofline = row.tok_per_s * row.ms / sum(row.roofline)
            if roofline <= 2 * longest:  # else it has no room
                rooflines[row.name] = roofline
    rate = Scale(0, max([longest, *rooflines.values()]))
    gains = gain_scale(section.rows + [rung.row for rung in alone.values()])
    drawn = []
    for rung in section.rungs:
        row = rung.row
        other = alone.get(row.name)
        alone_id = f"{section.without.id}/{other.stem}" if other else ""
        shown = DrawnRow(f"{section.id}/{row.name}", rung, other, alone_id)
        drawn.append(shown)
        if not row.logs:
            shown.why = row.status_in_full
            continue
        slow, fast = spread(row)
        shown.rate = f"{row.tok_per_s:,.0f}"
        shown.bar = f"width:{share(rate.at(row.tok_per_s))}"
        shown.spread = between(rate.at(slow), rate.at(fast))
        if row.name in rooflines:
            shown.roofline = f"left:{share(rate.at(rooflines[row.name]))}"
        if row.gain:
            shown.marks.append(mark(rung, gains))
            shown.said = rung.gain_text.partition(" (")[0]
        if other and other.row.gain:
            shown.marks.append(mark(other, gains, "alone"))
    return drawn, rate, gains


def spread(row: Row) -> tuple[float, float]:
    """The tok/s of a row at its 90th percentile (a tenth of the steps is slower) and its 10th."""
    slow = min(1, row.ms / row.p90_ms)
    fast = max(1, row.ms / row.p10_ms)
    return row.tok_per_s * slow, row.tok_per_s * fast


def gain_scale(rows: list[Row]) -> Scale:
    """The scale of the gains of these rows."""
    values = [-10, 10]
    for row in rows:
        if row.gain:
            for ratio in (row.gain.value, row.gain.low or 1, row.gain.high or 1):
                values.append(per_cent(ratio))
    return Scale(min(values), max(values))


def per_cent(ratio: float) -> float:
    """A gain as the axis shows it."""
    return min(100 * ratio - 100, HIGHEST_GAIN)


def mark(rung: MeasuredRung, scale: Scale, kind="") -> Mark:
    """The gain of a rung on its axis."""
    gain = rung.row.gain
    interval = None
    if gain.low:
        interval = between(scale.at(per_cent(gain.low)), scale.at(per_cent(gain.high)))
    dot = f"left:{share(scale.at(per_cent(gain.value)))}"
    return Mark(f"{kind} {rung.state}", dot, interval)


def draw_losses(ran: list[MeasuredRung]) -> tuple[list[Chart], list[Tick]]:
    """The loss of each rung as a line and a band over three axes, and the ticks of the loss."""
    loss = np.array([loss_curves(rung.row) for rung in ran])  # (rungs, 3, points)
    seconds = column(ran, "dt_ms").cumsum(axis=1) / 1e3
    axes = {
        "steps": column(ran, "step"),
        "seconds": seconds,
        "seconds after the first step": seconds - seconds[:, :1],
    }
    n = len(ran)
    at_first = (0, n // 2, n - 1)
    up = Scale(loss.min(), loss.max())
    charts = []
    for axis, values in axes.items():
        values = values[:, -loss.shape[2] :]  # a running mean begins later
        along = Scale(values.min(), values.max())
        curves = []
        for k in range(n):
            x = along.at(values[k])
            mean, low, high = up.at(loss[k])
            band = f"{svg(x, low)} {svg(x[::-1], high[::-1])}"
            curves.append(Curve(ran[k].title, hue(k, n), svg(x, mean), band, k in at_first))
        charts.append(Chart(axis, along.ticks(6), curves))
    return charts, up.ticks(5, upright=True)


def loss_curves(row: Row) -> np.ndarray:
    """The mean of the rounds, the lowest of them and the highest, at each step: (3, points)."""
    rounds = np.array([smooth_losses(log) for log in row.logs.values()])
    return np.array([rounds.mean(axis=0), rounds.min(axis=0), rounds.max(axis=0)])


def column(rungs: list[MeasuredRung], key: str) -> np.ndarray:
    """One value of the step lines of each rung's first run: (rungs, steps)."""
    values = []
    for rung in rungs:
        values.append([step[key] for step in rung.row.log.steps])
    return np.array(values)


def draw_times(rungs: list[MeasuredRung]) -> list[Time]:
    """The time of each rung to the loss of the first, if there are steps enough for one."""
    times = []
    for rung in rungs:
        if not rung.row.loss:
            continue
        found = rung.row.time_to_loss
        bar = interval = None
        if found:
            bar = f"width:{share(min(1, found.value / LONGEST_TIME))}"
            if found.low:
                low = min(1, found.low / LONGEST_TIME)
                interval = between(low, min(1, found.high / LONGEST_TIME))
        elif rung is rungs[0]:
            bar = f"width:{share(1 / LONGEST_TIME)}"
        text = rung.figures[f"time to the loss of {rungs[0].title}"]
        times.append(Time(rung.title, bar, interval, text))
    return times


def facts(section: ClimbSection) -> list[tuple[str, str]]:
    """How it was measured, in words by their headings; what is empty is not said."""
    climb, run = section.climb, section.run
    done = len(climb.failures)
    for rung in section.rungs:
        done += len(rung.row.logs)
    planned = climb.rounds * len(section.rungs)
    unfinished = ""
    if done < planned and not climb.ended:
        unfinished = f"{done} of {planned} runs are in"
    return [
        ("Not finished", unfinished),
        ("Failed", pairs(climb.failures)),
        ("System", f"{run['device']}, {climb.system}, {climb.cores} cores"),
        ("Clocks", pairs(climb.clocks)),
        ("Versions", pairs(climb.versions)),
        ("Text", f"{run['data']}, SHA-256 {run.get('data_sha256')}…"),
        ("Rounds", f"{max(len(rung.row.logs) for rung in section.rungs)}, interleaved"),
        ("Steps", section.steps),
        ("Raw logs", section.id),
        ("Flags of every run", " ".join(climb.flags)),
    ]


def pairs(them: dict[str, str]) -> str:
    """`key: value; key: value`."""
    return "; ".join(f"{key}: {value}" for key, value in them.items())
