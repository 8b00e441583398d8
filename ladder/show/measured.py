"""A climb in pictures and in a sentence: times, gains and losses with their intervals."""

import numpy as np

from ladder.measure.climb import Climb
from ladder.measure.losses import smooth_losses
from ladder.measure.rows import Row, compared
from ladder.measure.rows import loss_change as loss_difference
from ladder.measure.stats import MIN_ROUNDS, Estimate, mean_of
from ladder.show.chart import CURVES, Axis, Bar, Chart, Picture, Scale
from ladder.show.tables import loss_change, name_of, percent, title_of, with_interval

MOST = 10  # times as fast: where an axis of gains ends at the latest
TICKS = (0, 100, -50, 50, 300, 20, -20, 10, -10, 5, -5, 2, -2)  # per cent; the first come first
POINTS = 500  # of a curve, at most


def gain_in_words(gain: Estimate | None) -> str:
    """`2.44 times (2.34 … 2.56)`, below 2 `+2.1 % (−2.1 … +6.5)`; empty without a gain."""
    if not gain:
        return ""
    if gain.value >= 2:
        return with_interval(gain, "{:.2f}".format, " times")
    return percent(gain)


def gain_axis(heading: str, start: float, end: float, gains: list[Estimate], apart=0.25) -> Axis:
    """A logarithmic axis of gains in speed that holds these and 0 %; ticks are so far `apart`."""
    low, high = ends_of(gains, 1.0)
    scale = Scale(max(low, 1 / MOST), min(high, MOST), log=True)
    ticks = {}
    for per_cent in TICKS:
        ratio = 1 + per_cent / 100
        clear = all(abs(scale.at(ratio) - scale.at(other)) >= apart for other in ticks)
        if scale.low <= ratio <= scale.high and clear:
            ticks[ratio] = f"{per_cent} %".replace("-", "−")
    return Axis(heading, start, end, scale, ticks)


def ends_of(found: list[Estimate], origin: float) -> tuple[float, float]:
    """The lowest and the highest value of these estimates with their intervals, and of `origin`."""
    values = [origin]
    for estimate in found:
        values.append(estimate.value)
        if estimate.low is not None:
            values += [estimate.low, estimate.high]
    return min(values), max(values)


def draw_climb(climb: Climb, rows: list[Row], width: int, without=None, link="") -> Picture:
    """What a step of each row takes, and what the row gains, with its interval.

    `without` has the rows of a climb --without by stem: their gains stand beside. `link` comes
    before a row's name in an address.
    """
    heading = climb.comparison.gain_heading
    picture = Picture(width, f"Measured: milliseconds a step, {heading}")
    words = "Measured: tokens a second" if climb.batch_sizes else "Measured: milliseconds a step"
    marked = any(row.roofline for row in rows) and not climb.batch_sizes
    picture.say(f"{words}. Upright marks: the roofline, calculated" if marked else words)
    without = without or {}
    gains = [row.gain for row in rows if row.gain]
    alone = [row.gain for row in without.values() if row.gain]
    axes = []
    if heading:
        end = 0.7 if picture.wide else 0.98
        if alone:
            end = 0.55 if picture.wide else 0.65
        name = f"{heading}, 95 % interval, logarithmic"
        axes.append(gain_axis(name, 0.4, end, gains))
    if alone:
        name = "left out of the top alone"
        axes.append(gain_axis(name, end + 0.04, end + 0.21, alone, apart=0.4))
    longest = max(bar_value(climb, row) for row in rows if row.logs)
    bars = []
    for row in rows:
        bar = Bar(name_of(row), end=row.status, marks=[row.gain] if heading else [])
        bars.append(bar)
        bar.link = link and f"{link}{row.name}"
        if alone:
            left_out = without.get(row.stem)
            bar.marks.append(left_out and left_out.gain)
        if row.logs:
            value = bar_value(climb, row)
            bar.pieces = [(value / longest, "measured", "")]
            bar.end = f"{value:,.0f}"
            bar.right = gain_in_words(row.gain)
            if row.roofline and marked:
                bar.limit = sum(row.roofline) / longest
    picture.bars(bars, 0.28, axes)
    return picture


def bar_value(climb: Climb, row: Row) -> float:
    """What the bar of a row shows."""
    return row.tok_per_s if climb.batch_sizes else row.ms


def draw_losses(climb: Climb, rows: list[Row], width: int, link="") -> Picture:
    """The loss at which each row ends, and its difference, with the interval."""
    picture = Picture(width, "Loss, and its differences")
    changes = [row.loss_change for row in rows if row.loss_change]
    scale = Scale(*ends_of(changes, 0.0))
    heading = f"{climb.comparison.loss_heading}, 95 % interval"
    end = 0.68 if picture.wide else 0.98
    axis = Axis(heading, 0.2, end, scale, scale.ticks(5), origin=0)
    bars = []
    for row in rows:
        right = loss_change(row.loss_change) if row.loss_change else ""
        end = f"{row.loss:.4f}" if row.loss else row.status
        bar = Bar(name_of(row), end=end, marks=[row.loss_change], right=right)
        bar.link = link and f"{link}{row.name}"
        bars.append(bar)
    picture.bars(bars, axes=[axis])
    return picture


def draw_loss_curves(rows: list[Row], width: int) -> Picture:
    """The loss of each row less that of the first at each step, a mean over the rounds.

    In colour: significant changes, then what ends furthest from the first. The scale is that of the
    later half.
    """
    first, *others = rows
    differences = {}
    significant = set()
    for row in others:
        rounds = []
        for k in first.logs.keys() & row.logs.keys():
            rounds.append(smooth_losses(row.logs[k]) - smooth_losses(first.logs[k]))
        if rounds:
            differences[title_of(row)] = np.mean(rounds, axis=0)  # (points,)
            if row.loss_change and row.loss_change.significant:
                significant.add(title_of(row))
    last = len(first.log.steps)
    points = len(smooth_losses(first.log))
    steps = np.arange(last - points + 1, last + 1)  # a running mean begins later
    later = np.concatenate([mean[points // 2 :] for mean in differences.values()])
    margin = 0.1 * max(1e-3, np.ptp(later))
    up = Scale(min(0, later.min()) - margin, max(0, later.max()) + margin)
    names = sorted(differences, key=lambda name: -abs(differences[name][-1]))
    names.sort(key=lambda name: name not in significant)
    colors = dict(zip(names, CURVES, strict=False))
    picture = Picture(width, "Differences in loss over the steps")
    chart = Chart(picture, Scale(steps[0], last), up, margin=165 if picture.wide else 46)
    chart.axes(f"training loss less that of {title_of(first)}, nats", "steps")
    chart.line([steps[0], last], [0, 0], "ink", 1)
    every = 1 + points // POINTS
    for name in names[::-1]:
        color = colors.get(name, "soft")
        chart.line(steps[::every], differences[name][::every], color, 2 if name in colors else 1)
    chart.end_labels({name: mean[-1] for name, mean in differences.items()}, colors)
    return picture


def verdict(climb: Climb, rows: list[Row]) -> tuple[str, str]:
    """What came out, and how sure it is: `10 fused AdamW is 3.4 times as fast as 00 baseline`."""
    first = rows[0]
    others = [row for row in rows if row.gain and row.total]
    if not others:
        return title_of(first), "Nothing to compare: a gain needs two rungs, at one B."
    rounds = max(row.gain.rounds for row in others)
    fast, slow, gain = others[-1], first, others[-1].total
    if climb.comparison.against == "top":  # --without: the first row is the top
        slow = max(others, key=lambda row: row.gain.value)
        fast, gain = first, slow.gain
    said = f"{title_of(fast)} is {how_fast(gain)} {title_of(slow)}"
    if rounds < MIN_ROUNDS:
        return said, f"Rounds: {rounds}. From three on, gains have intervals."
    clear = [row.gain.value > 1 for row in others if row.gain.significant]
    if not gain.significant:
        said = f"No significant difference between {title_of(fast)} and {title_of(slow)}"
    tokens = f"{fast.tok_per_s:,.0f} instead of {slow.tok_per_s:,.0f} tokens a second"
    counts = f"significant gains: {clear.count(True)}, losses: {clear.count(False)}"
    return said, (
        f"{gain_in_words(gain)}: {tokens}. Of {len(others)} differences, {counts} (after Holm's "
        f"correction; {rounds} rounds)."
    )


def how_fast(gain: Estimate) -> str:
    """`3.4 times as fast as`, below 2 `12.3 % faster than`."""
    if gain.value >= 2:
        return f"{gain.value:.1f} times as fast as"
    change = (gain.value - 1) * 100
    return f"{abs(change):.1f} % {'faster' if change > 0 else 'slower'} than"


def loss_verdict(rows: list[Row]) -> tuple[str, str]:
    """What became of the loss, of rows that have one, and how sure it is."""
    first, last = rows[0], rows[-1]
    found = compared(first, last, loss_difference, mean_of)
    said = f"{title_of(last)} and {title_of(first)} have no round in common"
    if found:
        side = "above" if found.value > 0 else "below"
        said = f"{title_of(last)} ends {abs(found.value):.3f} nats {side} {title_of(first)}"
    clear = [title_of(row) for row in rows if row.loss_change and row.loss_change.significant]
    steps = len(first.log.steps)
    return said, (
        f"The mean of the last tenth of {steps} steps, a difference of {loss_change(found)}. "
        f"Significant after Holm's correction: {', '.join(clear) or 'no change'}."
    )
