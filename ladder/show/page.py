"""The page of `ladder report`, and docs/index.html: climbs and training runs as HTML.

What a log or a script says is text: `Markup.format` and `Markup.join` escape all they are given
that is not HTML already. The page runs no script and asks for nothing from elsewhere.
"""

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from markupsafe import Markup, escape

from ladder.measure.folder import Climb, climb_logs
from ladder.measure.rows import Row, index_of_base
from ladder.measure.work import LABELS
from ladder.show import chart, measured
from ladder.show.gather import Gathered, diff_of, fields_of, scripts_of
from ladder.show.tables import (
    caption,
    columns,
    footnotes,
    name_of,
    sizes,
    table,
    title_of,
)

HERE = Path(__file__).parent
MARKER = '<meta name="generator" content="ladder report">'
PAGE = Markup("""<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
{marker}
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; base-uri 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{style}</style>
<header><h1>The GPT-2 speed-up ladder</h1>
{links}</header>
<main>
{sections}
</main>
<footer>Made by ladder report{made}, from logs and scripts.</footer>
</html>
""")
NO_ROOFLINE = "No roofline is drawn: none is known for these runs."
DOTS = "Dots: {}, with the 95 % interval; filled ones are significant after Holm's correction."
ALONE = "The second column: what the top gains over itself without that rung alone."


@dataclass
class Section:
    """A part of the page; the first one's headline is the page's title."""

    id: str
    label: str
    headline: str
    html: Markup


def page(sections: list[Section], made="") -> str:
    """The whole page; `made` says when."""
    links = []
    parts = []
    for section in sections:
        links.append(Markup('<a href="#{}">{}</a>').format(section.id, section.label))
        part = Markup('<section id="{}">\n<h2>{}</h2>\n{}</section>\n')
        parts.append(part.format(section.id, section.headline, section.html))
    return PAGE.format(
        marker=Markup(MARKER),
        title=sections[0].headline,
        style=Markup(chart.style() + HERE.joinpath("report.css").read_text("utf-8")),
        links=tag("nav", links) if len(links) > 1 else "",
        sections=Markup("").join(parts),
        made=f" on {made}" if made else "",
    )


# ------------------------------------------------------------------ pieces of HTML


def tag(name: str, inside, css_class="") -> Markup:
    """An element with text, HTML or a list of both inside."""
    if isinstance(inside, list):
        inside = Markup("\n").join(inside)
    start = f'{name} class="{css_class}"' if css_class else name
    return Markup(f"<{start}>{{}}</{name}>").format(inside)


def prose(text: str) -> Markup:
    """A docstring's text; what stands between backticks is code."""
    return Markup(re.sub("`(.+?)`", r"<code>\1</code>", str(escape(text))))


def terms(pairs: dict) -> Markup:
    """Words by their headings; what is empty is not said."""
    shown = []
    for name, text in pairs.items():
        if text:
            shown.append(tag("div", [tag("dt", name), tag("dd", text)]))
    return tag("dl", shown)


def pairs(them: dict[str, str]) -> str:
    """`key: value; key: value`."""
    return "; ".join(f"{key}: {value}" for key, value in them.items())


def details(summary: str, inside: list, id="") -> Markup:
    """What opens. An address that ends with #id opens it, as the id is inside."""
    folded = Markup('<details><summary>{}</summary><div id="{}">{}</div></details>')
    return folded.format(summary, id, tag("div", inside))


def both(draw: Callable) -> Markup:
    """A picture wide and narrow: the style shows the one that the screen has room for."""
    wide = Markup(draw(width=chart.WIDE).svg(inline=True))
    narrow = Markup(draw(width=chart.NARROW).svg(inline=True))
    return tag("div", wide, "wide") + tag("div", narrow, "narrow")


def diff_html(lines: list[str]) -> Markup:
    """A diff, a line an element."""
    names = {"+": "add", "-": "del", "@": "soft"}
    shown = [tag("span", line, names.get(line[:1], "")) for line in lines]
    return tag("pre", tag("code", shown), "diff")


def table_html(lines: list[list]) -> Markup:
    """A table of cells as ladder.show.tables makes them."""
    rows = []
    for line in lines:
        rows.append(tag("tr", [tag("td", cell.text) for cell in line]))
    return tag("div", tag("table", rows), "scroll")


# ------------------------------------------------------------------ a climb


def climb_section(found: Gathered, without: Gathered | None = None, with_logs=True) -> Section:
    """The section of a climb, with a climb --without beside it."""
    climb, rows, ran = found.climb, found.rows, found.ran
    headline, sure = measured.verdict(climb, ran)
    parts = [tag("p", f"{caption(climb, ran)}.", "soft")]
    parts += [tag("p", words, "warning") for words in notices(climb, rows)]
    if any(row.loss_change for row in ran):
        headline, losses = losses_html(found)
        parts += [*losses, tag("h3", "Speed")]
    parts.append(tag("p", sure))
    if any(row.gain and row.gain.low is not None for row in ran):
        parts.append(tag("p", DOTS.format(climb.comparison.gain_heading), "soft"))
    alone = {}
    if without:
        alone = {row.stem.removeprefix("without_"): row for row in without.rows}
        parts.append(tag("p", ALONE, "soft"))
    if not any(row.roofline for row in ran):
        parts.append(tag("p", NO_ROOFLINE, "soft"))
    parts.append(both(partial(measured.draw_climb, climb, rows, without=alone, link=found.id)))
    parts += rungs_html(found, with_logs)
    parts += [tag("h3", "All numbers"), table_html(table(rows, columns(climb, rows)))]
    parts += [tag("p", note, "soft") for note in footnotes(climb, rows)]
    parts += [tag("h3", "How it was measured"), terms(facts(found))]
    run = ran[0].log.run
    label = f"{run['device']}, {climb.started}, {run['model']}, B={sizes(ran)}, T={run['T']}: "
    label += f"{title_of(rows[0])} to {title_of(rows[-1])}"
    return Section(found.id, label, f"{headline} on {run['device']}", tag("div", parts))


def notices(climb: Climb, rows: list[Row]) -> list[str]:
    """What stands above the numbers: that a climb has not ended."""
    if climb.ended:
        return []
    done = sum(len(row.logs) for row in rows)
    return [f"not finished: {done} of {climb.rounds * len(rows)} runs are in"]


def facts(found: Gathered) -> dict[str, str]:
    """How a climb was measured, in words by their headings."""
    climb = found.climb
    log = found.ran[0].log
    return {
        "Started": climb.started,
        "System": f"{climb.system}, {climb.cores} cores",
        "Clocks": pairs(climb.clocks),
        "Versions": pairs(climb.versions),
        "Rounds": f"{climb.rounds}, interleaved",
        "Steps": f"{log.warmup_steps} for warm-up, left out; {log.measured_steps} measured",
        "Flags": " ".join(climb.flags),
        "Raw logs": found.id,
    }


def losses_html(found: Gathered) -> tuple[str, list]:
    """What the rungs do to the loss, in words and in pictures."""
    rows = [row for row in found.ran if row.loss]
    said, sure = measured.loss_verdict(rows)
    heading = found.climb.comparison.loss_heading
    return said, [
        tag("h3", "Loss"),
        tag("p", sure),
        tag("p", DOTS.format(heading), "soft"),
        both(partial(measured.draw_losses, heading, rows)),
        both(partial(measured.draw_loss_curves, rows)),
    ]


def rungs_html(found: Gathered, with_logs: bool) -> list:
    """What is behind each row: what its script says of itself, its diff and its logs."""
    logs = climb_logs(found.folder, found.climb) if with_logs else {}
    shown = []
    with tempfile.TemporaryDirectory() as scratch:
        scripts = scripts_of(found.folder, found.climb, Path(scratch))
        for index, row in enumerate(found.rows):
            inside = rung_html(row, base_row(found, index), scripts)
            for (name, k), text in sorted(logs.items()):
                if name == row.name:
                    inside.append(details(f"{name}.r{k}.log", [tag("pre", text)]))
            summary = f"{name_of(row)} {measured.gain_in_words(row.gain)}"
            shown.append(details(summary, inside, f"{found.id}/{row.name}"))
    return shown


def base_row(found: Gathered, index: int) -> Row | None:
    """The row whose script a row's diff begins with."""
    against = found.climb.comparison.against
    if index and against == "previous":
        return found.rows[index_of_base(found.rows, index)]
    if index and against == "top":
        return found.rows[0]
    return None


def rung_html(row: Row, base: Row | None, scripts: dict[str, Path]) -> list:
    """What a script says of itself, what ran, and its diff."""
    path = scripts.get(row.stem)
    facts = {"Status": row.failure or ""}
    if path:
        for name, text in fields_of(path).items():
            facts[name] = prose(text)
    else:
        facts["Script"] = "not in the folder of the climb"
    if row.logs:
        facts["What ran"] = pairs(row.log.effective)
    if row.roofline:
        parts = {name: f"{ms:.1f} ms" for name, ms in zip(LABELS, row.roofline, strict=True)}
        parts |= {"together": f"{sum(row.roofline):.1f} ms", "measured": f"{row.ms:.1f} ms"}
        facts["Roofline"] = pairs(parts)
    shown = [terms(facts)]
    diff = diff_of(scripts.get(base.stem), path) if base else []
    if diff:
        shown.append(tag("p", f"Diff from {title_of(base)}, docstrings left out:", "soft"))
        shown.append(diff_html(diff))
    return shown
