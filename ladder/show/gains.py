"""A climb in pictures and in a sentence: times, gains and losses with their intervals."""

from ladder.measure.rows import Results, compared, loss_change
from ladder.measure.stats import mean_of
from ladder.show import words
from ladder.show.chart import Bar, Picture


def draw_climb(results: Results, width: int) -> Picture:
    """What a step of each row takes, its roofline, and what the row gains, with its interval."""
    rows = results.rows
    heading = results.climb.comparison.gain_heading
    picture = Picture(width, f"Milliseconds a step, {heading}")
    said = "Bars: milliseconds a step."
    if any(row.roofline for row in rows):
        said += " Upright marks: the roofline, calculated."
    if any(row.gain for row in rows):
        said += f" Dots: {heading}, filled if significant."
    picture.say(said)
    longest = max(row.ms for row in results.ran)
    bars = []
    for row in rows:
        bar = Bar(row.title, end=row.status, marks=[row.gain])
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


def draw_losses(results: Results, width: int) -> Picture:
    """The loss at which each row ends, and its difference, with the interval."""
    heading = results.climb.comparison.loss_heading
    picture = Picture(width, "Loss, and its differences")
    picture.say(f"The loss at the end. Dots: {heading}, filled if significant.")
    bars = []
    for row in results.ran:
        bar = Bar(row.title, end=f"{row.loss:.4f}", marks=[row.loss_change])
        if row.loss_change:
            bar.right = words.difference(row.loss_change)
        bars.append(bar)
    picture.bars(bars, 0, heading, gains=False)
    return picture


def headline_of(results: Results) -> tuple[str, str]:
    """What a climb found, and a sentence with the interval: of the loss if that was measured, else
    of the speed."""
    kind = results.climb.comparison
    first, last = results.ran[0], results.ran[-1]
    difference = None
    if last.loss_change:
        difference = compared(first, last, loss_change, mean_of)
    if difference:
        side = "above" if difference.value > 0 else "below"
        said = f"{last.title} ends {abs(difference.value):.3f} nats {side} {first.title}"
        nats = words.difference(difference)
        return said, f"{nats} nats, the mean of the last tenth of the steps."
    compared_rows = [row for row in results.ran if row.gain and row.total]
    if not compared_rows:
        return kind.what.capitalize(), "A gain needs two rungs, at one B."
    last = compared_rows[-1]
    if kind.against != "previous":  # what the top needs, or beats transformers by, most
        last = max(compared_rows, key=lambda row: row.gain.value)
    gain = last.total
    said = f"{last.title} is {words.as_fast(gain.value)} {first.title}"
    rates = f"{last.tok_per_s:,.0f} instead of {words.rate(first.tok_per_s)}"
    numbers = f"{words.gain(gain)}: {rates}."
    if gain.p is None:
        said = f"A first look: {last.title} beside {first.title}"
        numbers += " Too few rounds to say how sure that is."
    elif not gain.significant:
        said = f"No significant difference between {last.title} and {first.title}"
    return said, numbers
