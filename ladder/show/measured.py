"""A climb in a picture and in a sentence: times, gains and losses with their intervals."""

from ladder.measure.folder import Climb
from ladder.measure.rows import Row, compared
from ladder.measure.rows import loss_change as loss_difference
from ladder.measure.stats import Estimate, mean_of
from ladder.show.chart import Bar, Picture, axis_of
from ladder.show.tables import loss_change, name_of, percent, title_of, with_interval


def gain_in_words(gain: Estimate | None) -> str:
    """`2.44 times (2.34 … 2.56)`, below 2 `+2.1 % (−2.1 … +6.5)`; empty without a gain."""
    if not gain:
        return ""
    if gain.value >= 2:
        return with_interval(gain, "{:.2f}".format, " times")
    return percent(gain)


def draw_climb(climb: Climb, rows: list[Row], width: int) -> Picture:
    """What a step of each row takes, its roofline, and what the row gains, with its interval."""
    heading = climb.comparison.gain_heading
    picture = Picture(width, f"Milliseconds a step, {heading}")
    words = "Bars: milliseconds a step. Filled dots: significant"
    if any(row.roofline for row in rows):
        words += ". Upright marks: the roofline, calculated"
    picture.say(words)
    longest = max(row.ms for row in rows if row.logs)
    bars = []
    for row in rows:
        bar = Bar(name_of(row), end=row.status, marks=[row.gain])
        if row.logs:
            bar.pieces = [(row.ms / longest, "measured", "")]
            bar.end = f"{row.ms:,.0f}"
            bar.right = gain_in_words(row.gain)
        if row.roofline:
            bar.limit = sum(row.roofline) / longest
        bars.append(bar)
    gains = [row.gain for row in rows if row.gain]
    axis = axis_of(gains, 1, f"{heading}: times, logarithmic", log=True) if gains else None
    picture.bars(bars, 0.28, axis)
    return picture


def draw_losses(climb: Climb, rows: list[Row], width: int) -> Picture:
    """The loss at which each row ends, and its difference, with the interval."""
    picture = Picture(width, "Loss, and its differences")
    bars = []
    for row in rows:
        bar = Bar(name_of(row), end=f"{row.loss:.4f}", marks=[row.loss_change])
        bar.right = loss_change(row.loss_change)
        bars.append(bar)
    changes = [row.loss_change for row in rows if row.loss_change]
    picture.bars(bars, 0, axis_of(changes, 0, climb.comparison.loss_heading))
    return picture


def verdict(climb: Climb, rows: list[Row]) -> tuple[str, str]:
    """What came out, and how sure it is, of rows that ran: the loss if that was measured, else
    the speed."""
    first, last = rows[0], rows[-1]
    difference = None
    if last.loss_change:
        difference = compared(first, last, loss_difference, mean_of)
    if difference:
        side = "above" if difference.value > 0 else "below"
        said = f"{title_of(last)} ends {abs(difference.value):.3f} nats {side} {title_of(first)}"
        return said, f"{loss_change(difference)} nats, the mean of the last tenth of the steps."
    ran = [row for row in rows if row.gain and row.total]
    if not ran:
        return climb.comparison.what.capitalize(), "A gain needs two rungs, at one B."
    slow, fast, gain = first, ran[-1], ran[-1].total
    if climb.comparison.against == "top":  # --without: the first row is the top
        slow, fast = max(ran, key=lambda row: row.gain.value), first
        gain = slow.gain
    said = f"{title_of(fast)} is {how_fast(gain)} {title_of(slow)}"
    if gain.low is not None and not gain.significant:
        said = f"No significant difference between {title_of(fast)} and {title_of(slow)}"
    tokens = f"{fast.tok_per_s:,.0f} instead of {slow.tok_per_s:,.0f} tokens a second"
    return said, f"{gain_in_words(gain)}, {gain.rounds} rounds: {tokens}."


def how_fast(gain: Estimate) -> str:
    """`3.4 times as fast as`, below 2 `12.3 % faster than`."""
    if gain.value >= 2:
        return f"{gain.value:.1f} times as fast as"
    change = (gain.value - 1) * 100
    return f"{abs(change):.1f} % {'faster' if change > 0 else 'slower'} than"
