"""A climb in pictures and in a sentence: times, gains and losses with their intervals."""

from ladder.measure.folder import Climb
from ladder.measure.rows import Row, compared, loss_change
from ladder.measure.stats import mean_of
from ladder.show import words
from ladder.show.chart import Bar, Picture
from ladder.show.tables import name_of, title_of


def draw_climb(climb: Climb, rows: list[Row], width: int) -> Picture:
    """What a step of each row takes, its roofline, and what the row gains, with its interval."""
    heading = climb.comparison.gain_heading
    picture = Picture(width, f"Milliseconds a step, {heading}")
    said = "Bars: milliseconds a step."
    if any(row.roofline for row in rows):
        said += " Upright marks: the roofline, calculated."
    if any(row.gain for row in rows):
        said += f" Dots: {heading}, filled if significant."
    picture.say(said)
    longest = max(row.ms for row in rows if row.logs)
    bars = []
    for row in rows:
        bar = Bar(name_of(row), end=row.status, marks=[row.gain])
        if row.logs:
            bar.pieces = [(row.ms / longest, "measured", "")]
            bar.end = f"{row.ms:,.0f}"
        if row.gain:
            bar.right = words.gain(row.gain)
        if row.roofline:
            bar.limit = sum(row.roofline) / longest
        bars.append(bar)
    picture.bars(bars, 0.28, heading)
    return picture


def draw_losses(climb: Climb, rows: list[Row], width: int) -> Picture:
    """The loss at which each row ends, and its difference, with the interval."""
    heading = climb.comparison.loss_heading
    picture = Picture(width, "Loss, and its differences")
    picture.say(f"The loss at the end. Dots: {heading}, filled if significant.")
    bars = []
    for row in rows:
        bar = Bar(name_of(row), end=f"{row.loss:.4f}", marks=[row.loss_change])
        if row.loss_change:
            bar.right = words.difference(row.loss_change)
        bars.append(bar)
    picture.bars(bars, 0, heading, gains=False)
    return picture


def headline_of(climb: Climb, rows: list[Row]) -> tuple[str, str]:
    """What a climb of these rows found, and a sentence with the interval: of the loss if that was
    measured, else of the speed."""
    first, last = rows[0], rows[-1]
    difference = None
    if last.loss_change:
        difference = compared(first, last, loss_change, mean_of)
    if difference:
        side = "above" if difference.value > 0 else "below"
        said = f"{title_of(last)} ends {abs(difference.value):.3f} nats {side} {title_of(first)}"
        found = words.difference(difference)
        return said, f"{found} nats, the mean of the last tenth of the steps."
    ran = [row for row in rows if row.gain and row.total]
    if not ran:
        return climb.comparison.what.capitalize(), "A gain needs two rungs, at one B."
    last = ran[-1]
    if climb.comparison.against != "previous":  # what the top needs, or beats transformers by, most
        last = max(ran, key=lambda row: row.gain.value)
    gain = last.total
    said = f"{title_of(last)} is {words.as_fast(gain.value)} {title_of(first)}"
    rates = f"{last.tok_per_s:,.0f} instead of {words.rate(first.tok_per_s)}"
    found = f"{words.gain(gain)}: {rates}."
    if gain.p is None:
        said = f"A first look: {title_of(last)} beside {title_of(first)}"
        found += " Too few rounds to say how sure that is."
    elif not gain.significant:
        said = f"No significant difference between {title_of(last)} and {title_of(first)}"
    return said, found
