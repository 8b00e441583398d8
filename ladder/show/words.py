"""How a gain, a difference, a share and a rate are spelled: on a terminal, in Markdown, on the page
and in pictures.

An estimate has its interval behind it, or below three rounds their number.
"""

from collections.abc import Callable

from ladder.measure.stats import Estimate

IN_TIMES = 2  # a gain from here up is said in times, one below in per cent


def gain(found: Estimate) -> str:
    """`+12.3 % (+10.1 … +14.6)`, or `no change (2 rounds)`; from 2 up `2.61 times (…)`."""
    if found.value >= IN_TIMES:
        return with_interval(found, "{:.2f}".format, " times")
    return with_interval(found, lambda ratio: f"{(ratio - 1) * 100:+.1f}", " %")


def difference(found: Estimate) -> str:
    """Of losses, in nats: `+0.123 (+0.101 … +0.146)`, or `no change (−0.001 … +0.000)`."""
    return with_interval(found, "{:+.3f}".format, "")


def share(found: Estimate) -> str:
    """`0.62× (0.60 … 0.65)`, or `0.62× (2 rounds)`."""
    return with_interval(found, "{:.2f}".format, "×")


def percent(part: float, digits: int = 0) -> str:
    """The share of a peak or a limit: `54 %`."""
    return f"{part * 100:.{digits}f} %"


def with_interval(found: Estimate, text: Callable[[float], str], unit: str) -> str:
    """`+12.3 % (+10.1 … +14.6)`, each number written by `text`, or `+12.3 % (2 rounds)`."""
    value = text(found.value)
    shown = f"{value}{unit}" if float(value) else "no change"
    certainty = "1 round" if found.rounds == 1 else f"{found.rounds} rounds"
    if found.p is not None:
        low, high = text(found.low), text(found.high)
        if float(low) == float(high) == 0:
            return shown
        certainty = f"{low} … {high}"
    return f"{shown} ({certainty})".replace("-", "−")


def gain_text(ratio: float) -> str:
    """How many times as fast a step is: `3.7 times`, or `+20 %`."""
    if ratio >= IN_TIMES:
        return f"{ratio:.1f} times"
    percent = (ratio - 1) * 100
    digits = 0 if abs(percent) >= 0.95 else 1
    text = f"{percent:+.{digits}f}"
    return f"{text} %".replace("-", "−") if float(text) else "no change"


def as_fast(ratio: float) -> str:
    """A gain in speed, in a sentence: `2.44 times as fast as`, `15 % faster than`."""
    if ratio >= IN_TIMES:
        return f"{ratio:.2f} times as fast as"
    return f"{abs(ratio - 1) * 100:.0f} % {'faster' if ratio > 1 else 'slower'} than"


def rate(tok_per_s: float) -> str:
    """`166,657 tokens a second`."""
    return f"{tok_per_s:,.0f} tokens a second"


def span(values: list[float], digits: int = 2) -> str:
    """From the first to the last of these numbers: `44,000 to 51,000`, or one if they are equal."""
    ends = [f"{float(f'{value:.{digits}g}'):,.7g}" for value in (values[0], values[-1])]
    return " to ".join(dict.fromkeys(ends))
