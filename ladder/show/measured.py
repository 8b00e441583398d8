"""A climb in pictures and in a sentence: times, gains and losses with their intervals."""

import numpy as np

from ladder.measure.folder import Climb
from ladder.measure.losses import smooth_losses
from ladder.measure.rows import Row, compared
from ladder.measure.rows import loss_change as loss_difference
from ladder.measure.stats import MIN_ROUNDS, Estimate, mean_of
from ladder.show.chart import CURVES, Axis, Bar, Chart, Picture, Scale
from ladder.show.tables import loss_change, name_of, percent, title_of, with_interval

MOST = 10  # times as fast: where an axis of gains ends at the latest
TICKS = (0, 100, -50, 50, 300, 20, -20, 10, -10, 5, -5, 2, -2)  # per cent; the first come first


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
    """What a step of each row takes, its roofline, and what the row gains, with its interval.

    `without` has the rows of a climb --without by stem: their gains stand beside. `link` is the id
    of the section in which a row has more.
    """
    heading = climb.comparison.gain_heading
    picture = Picture(width, f"Milliseconds a step, {heading}")
    words = "Measured: milliseconds a step"
    if any(row.roofline for row in rows):
        words += ". Upright marks: the roofline, calculated"
    picture.say(words)
    end = 0.7 if picture.wide else 0.98
    axes = []
    if without:
        end = 0.55 if picture.wide else 0.65
        alone = [row.gain for row in without.values() if row.gain]
        name = "left out of the top alone"
        axes.append(gain_axis(name, end + 0.04, end + 0.21, alone, apart=0.4))
    gains = [row.gain for row in rows if row.gain]
    if gains:
        name = f"{heading}, 95 % interval, logarithmic"
        axes.insert(0, gain_axis(name, 0.4, end, gains))
    longest = max(row.ms for row in rows if row.logs)
    bars = []
    for row in rows:
        bar = Bar(name_of(row), end=row.status, link=link and f"#{link}/{row.name}")
        if gains:
            bar.marks.append(row.gain)
        if without:
            bar.marks.append(without[row.stem].gain if row.stem in without else None)
        if row.logs:
            bar.pieces = [(row.ms / longest, "measured", "")]
            bar.end = f"{row.ms:,.0f}"
            bar.right = gain_in_words(row.gain)
        if row.roofline:
            bar.limit = sum(row.roofline) / longest
        bars.append(bar)
    picture.bars(bars, 0.28, axes)
    return picture


def draw_losses(heading: str, rows: list[Row], width: int) -> Picture:
    """The loss at which each row ends, and its difference, with the interval."""
    picture = Picture(width, "Loss, and its differences")
    scale = Scale(*ends_of([row.loss_change for row in rows if row.loss_change], 0.0))
    end = 0.68 if picture.wide else 0.98
    axis = Axis(heading, 0.2, end, scale, scale.ticks(5), origin=0)
    bars = []
    for row in rows:
        bar = Bar(name_of(row), end=f"{row.loss:.4f}", marks=[row.loss_change])
        if row.loss_change:
            bar.right = loss_change(row.loss_change)
        bars.append(bar)
    picture.bars(bars, axes=[axis])
    return picture


def draw_loss_curves(rows: list[Row], width: int) -> Picture:
    """The loss of each row less that of the first at each step, a mean over the rounds.

    In colour: the last significant changes. The scale is that of the later half.
    """
    first, *others = rows
    differences = {}
    significant = []
    for row in others:
        rounds = []
        for k in first.logs.keys() & row.logs.keys():
            rounds.append(smooth_losses(row.logs[k]) - smooth_losses(first.logs[k]))
        if rounds:
            differences[title_of(row)] = np.mean(rounds, axis=0)  # (points,)
        if row.loss_change and row.loss_change.significant:
            significant.append(title_of(row))
    colors = dict(zip(significant[::-1], CURVES, strict=False))
    last = len(first.log.steps)
    points = len(smooth_losses(first.log))
    steps = np.arange(last - points + 1, last + 1)  # a running mean begins later
    low = high = 0
    for mean in differences.values():
        later = mean[points // 2 :]
        low = min(low, later.min())
        high = max(high, later.max())
    margin = 0.1 * max(1e-3, high - low)
    up = Scale(low - margin, high + margin)
    picture = Picture(width, "Differences in loss over the steps")
    chart = Chart(picture, Scale(steps[0], last), up, margin=165 if picture.wide else 46)
    chart.axes(f"training loss less that of {title_of(first)}, nats", "steps")
    chart.line([steps[0], last], [0, 0], "ink", 1)
    for name, mean in differences.items():
        thick = 2 if name in colors else 1
        chart.line(steps, mean, colors.get(name, "soft"), thick)
    ends = {name: mean[-1] for name, mean in differences.items()}
    chart.end_labels(ends, colors)
    return picture


def verdict(climb: Climb, rows: list[Row]) -> tuple[str, str]:
    """What came out, and how sure it is: `10 fused AdamW is 3.4 times as fast as 00 baseline`."""
    first = rows[0]
    others = [row for row in rows if row.gain and row.total]
    if not others:
        return climb.comparison.what.capitalize(), "A gain needs two rungs, at one B."
    rounds = max(row.gain.rounds for row in others)
    fast, slow, gain = others[-1], first, others[-1].total
    if climb.comparison.against == "top":  # --without: the first row is the top
        slow = max(others, key=lambda row: row.gain.value)
        fast, gain = first, slow.gain
    said = f"{title_of(fast)} is {how_fast(gain)} {title_of(slow)}"
    if rounds < MIN_ROUNDS:
        return said, f"Rounds: {rounds}. From three on, gains have intervals."
    if not gain.significant:
        said = f"No significant difference between {title_of(fast)} and {title_of(slow)}"
    tokens = f"{fast.tok_per_s:,.0f} instead of {slow.tok_per_s:,.0f} tokens a second"
    return said, f"{gain_in_words(gain)}: {tokens}; {rounds} rounds."


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
