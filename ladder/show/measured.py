"""A climb as the page shows it: what came out, in words, and where each mark stands."""

from dataclasses import dataclass, field

from ladder.measure.rows import Row, rounds_begun
from ladder.measure.stats import MIN_ROUNDS
from ladder.show.draw import Mark, Scale, Tick, between, draw_mark, share, state
from ladder.show.gather import ClimbSection, Rung
from ladder.show.losses import Losses, draw_losses

HIGHEST_GAIN = 400  # per cent; an interval that reaches beyond is cut


@dataclass
class DrawnRow:
    """A row of a climb on the page. One that has not run has no bars, but `why`."""

    id: str
    rung: Rung
    alone: Rung | None  # of the climb --without beside it
    rate: str = ""  # tokens per second
    bar: str = ""
    change: str = ""  # `added` or `lost`, where the row is significantly faster or slower
    changed: str = ""  # the piece of the bar that is
    roofline: str | None = None  # None if it is unknown, or has no room
    marks: list[Mark] = field(default_factory=list)
    state: str = ""  # of its gain
    said: str = ""  # the gain, without its interval
    why: str = ""


@dataclass
class DrawnClimb:
    """All that the page says and draws of one climb."""

    headline: str
    certainty: str
    rate_ticks: list[Tick]
    gain_ticks: list[Tick]
    rates: str  # whose rates a roofline is at
    rows: list[DrawnRow]
    has_rooflines: bool
    losses: Losses | None  # of runs that have steps enough
    facts: list[tuple[str, str]]


def draw_climb(section: ClimbSection) -> DrawnClimb:
    """All that the page says and draws of a climb."""
    headline, certainty = verdict(section)
    rows, rate, gains = draw_rows(section)
    return DrawnClimb(
        headline=headline,
        certainty=certainty,
        rate_ticks=rate.ticks(5),
        gain_ticks=gains.ticks(8),
        rates="measured here" if section.climb.device_type == "cpu" else "that owners measured",
        rows=rows,
        has_rooflines=any(row.roofline for row in rows),
        losses=draw_losses(section),
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
    states = [state(rung.row.gain) for rung in rungs]
    certainty = (
        f"Of {len(states)} differences, significant gains: {states.count('up')}, losses: "
        f"{states.count('down')} (after Holm's correction over all rows; {rounds} rounds)."
    )
    fast, slow, gain = comparison(section, rungs)
    if not gain or not gain.significant:
        name = f"{fast.title} over {slow.title}"
        return f"No significant difference on {device}: {name}", certainty
    digits = 1 if gain.low >= 2 else 2
    said = f"{fast.title} is {gain.value:.{digits}f} times as fast as {slow.title} on {device}"
    interval = f"{gain.low:.{digits}f} to {gain.high:.{digits}f}"
    certainty = (
        f"The script {fast.title} trains {fast.row.tok_per_s:,.0f} tokens per second, not "
        f"{slow.row.tok_per_s:,.0f}: {interval} times as many. {certainty}"
    )
    return said, certainty


def comparison(section: ClimbSection, rungs: list[Rung]) -> tuple:
    """The top rung, the one it is compared with, and its gain over that."""
    first = section.rungs[0]
    if section.climb.comparison.against == "top":  # --without: the first row is the top
        clear = [rung for rung in rungs if rung.row.gain.significant]
        without = max(clear or rungs, key=lambda rung: rung.row.gain.value)
        return first, without, without.row.gain
    top = rungs[-1]
    return top, first, top.row.total


def draw_rows(section: ClimbSection) -> tuple[list[DrawnRow], Scale, Scale]:
    """The rows of a climb, the scale of their rates, and that of their gains in per cent."""
    alone = {}
    if section.without:
        for rung in section.without.rungs[1:]:
            alone[rung.row.name.removeprefix("without_")] = rung
    rows = [rung.row for rung in section.rungs]
    ran = [row for row in rows if row.logs]
    longest = max(row.tok_per_s for row in ran)
    rooflines = {}
    for row in ran:
        if row.roofline:
            roofline = row.tok_per_s * row.ms / sum(row.roofline)
            if roofline <= 2 * longest:  # else it has no room
                rooflines[row.name] = roofline
    rate = Scale(0, max([longest, *rooflines.values()]))
    gains = gain_scale(rows + [rung.row for rung in alone.values()])

    def place(ratio: float) -> float:
        return gains.at(per_cent(ratio))

    drawn = []
    for rung in section.rungs:
        row = rung.row
        other = alone.get(row.name)
        shown = DrawnRow(f"{section.id}/{row.name}", rung, other)
        drawn.append(shown)
        if not row.logs:
            shown.why = row.status_in_full
            continue
        shown.rate = f"{row.tok_per_s:,.0f}"
        shown.bar = f"width:{share(rate.at(row.tok_per_s))}"
        if row.name in rooflines:
            shown.roofline = f"left:{share(rate.at(rooflines[row.name]))}"
        if row.gain:
            base = (rung.base or section.rungs[0]).row
            low, high = sorted([row.tok_per_s, base.tok_per_s])
            if row.gain.significant:
                shown.change = "added" if high == row.tok_per_s else "lost"
                shown.changed = between(rate.at(low), rate.at(high))
            shown.state = state(row.gain)
            shown.marks.append(draw_mark(row.gain, place, shown.state))
            shown.said = rung.gain_text.partition(" (")[0]
        if other and other.row.gain:
            css_class = f"alone {state(other.row.gain)}"
            shown.marks.append(draw_mark(other.row.gain, place, css_class))
    return drawn, rate, gains


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


def facts(section: ClimbSection) -> list[tuple[str, str]]:
    """How it was measured, in words by their headings; what is empty is not said."""
    climb, run = section.climb, section.run
    return [
        ("System", f"{run['device']}, {climb.system}, {climb.cores} cores"),
        ("Clocks", pairs(climb.clocks)),
        ("Versions", pairs(climb.versions)),
        ("Text", f"{run['data']}, SHA-256 {run.get('data_sha256')}…"),
        ("Rounds", f"{rounds_begun([rung.row for rung in section.rungs])}, interleaved"),
        ("Steps", section.steps),
        ("Raw logs", section.id),
        ("Flags of every run", " ".join(climb.flags)),
    ]


def pairs(them: dict[str, str]) -> str:
    """`key: value; key: value`."""
    return "; ".join(f"{key}: {value}" for key, value in them.items())
