"""The page of `ladder report`, and docs/index.html: climbs and training runs as HTML.

What a log or a script says is text: `Markup.format` and `Markup.join` escape all they are given
that is not HTML already. The page runs no script and asks for nothing from elsewhere.
"""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from ladder.errors import UsageError
from ladder.log import pairs_line
from ladder.measure.folder import scripts_of, stem_of
from ladder.measure.notes import describe, docstring
from ladder.measure.rows import NOT_RUN, Results, Row, read_climb
from ladder.show import chart
from ladder.show.diffs import code_diff
from ladder.show.gains import draw_climb, draw_losses, headline_of
from ladder.show.tables import Cell, caption, columns, footnotes, table

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
<p>Ten scripts that train GPT-2 (124M), each the one before it plus a small diff: how long a step
takes, what each diff gains, and how the loss of a longer run falls.</p>
{links}</header>
<main>
{sections}
</main>
<footer>Made by ladder report, from logs and scripts.</footer>
</html>
""")


class Section(NamedTuple):
    """A part of the page; the first one's headline is the page's title."""

    id: str
    headline: str
    html: Markup


def page(sections: list[Section]) -> str:
    """The whole page."""
    links = parts = Markup("")
    for section in sections:
        links += Markup('<a href="#{0.id}">{0.headline}</a>').format(section)
        part = Markup('<section id="{0.id}">\n<h2>{0.headline}</h2>\n{0.html}</section>\n')
        parts += part.format(section)
    rules = Path(__file__).with_name("report.css").read_text("utf-8")
    return PAGE.format(
        marker=Markup(MARKER),
        title=sections[0].headline,
        style=Markup(chart.style() + rules),
        links=tag("nav", links),
        sections=parts,
    )


# ------------------------------------------------------------------ pieces of HTML


def tag(name: str, inside: str | list[str], css_class: str = "") -> Markup:
    """An element with text, HTML or a list of both inside."""
    if isinstance(inside, list):
        inside = Markup("\n").join(inside)
    start = f'{name} class="{css_class}"' if css_class else name
    return Markup(f"<{start}>{{}}</{name}>").format(inside)


def terms(pairs: dict[str, str]) -> Markup:
    """Words by their headings; what is empty is not said."""
    shown = []
    for name, text in pairs.items():
        if text:
            shown.append(tag("div", [tag("dt", name), tag("dd", text)]))
    return tag("dl", shown)


def details(summary: str, inside: list[str]) -> Markup:
    """What opens."""
    return tag("details", [tag("summary", summary), tag("div", inside)])


def both(draw: Callable) -> Markup:
    """A picture wide and narrow: the style shows the one that the screen has room for."""
    wide = Markup(draw(width=chart.WIDE).svg(inline=True))
    narrow = Markup(draw(width=chart.NARROW).svg(inline=True))
    return tag("div", wide, "wide") + tag("div", narrow, "narrow")


def diff_html(before: Path | None, after: Path | None) -> Markup:
    """The diff of two scripts, a line an element; empty if one is not there, or not Python."""
    lines = []
    if before and after:
        with suppress(UsageError):
            lines = code_diff(before, after)
    names = {"+": "add", "-": "del", "…": "soft"}
    shown = [tag("span", line, names.get(line[:1], "")) for line in lines]
    return tag("pre", tag("code", shown), "diff")


def table_html(lines: list[list[Cell]], words: Sequence[int] = (0,)) -> Markup:
    """A table of cells as ladder.show.tables makes them. Words may be broken into lines, numbers
    not; an interval stands below its value, and may be broken between its ends.

    On a small screen each row is a paragraph, in which a cell has its heading before it.
    """
    rows = Markup("")
    for line in lines:
        row = Markup("")
        for k, (heading, cell) in enumerate(zip(lines[0], line, strict=True)):
            name = "words" if k in words else "number"
            text = cell.text
            if line is not lines[0] and k not in words:
                text = text.replace(" (", "\n(").replace(" ", "\N{NO-BREAK SPACE}")
                text = text.replace("…\N{NO-BREAK SPACE}", "… ")
            td = Markup('<td class="{}" data-heading="{}">{}</td>')
            row += td.format(name, heading.text, text)
        rows += tag("tr", row)
    return tag("table", rows)


# ------------------------------------------------------------------ a climb


def climb_section(folder: Path, with_logs: bool = True) -> Section:
    """The section of a climb. Raises UsageError if it is none, or nothing of it can be shown."""
    results = read_climb(folder)
    climb = results.climb
    if not results.ran:
        raise UsageError(f"{folder} cannot be shown: none of its runs has ended well yet")
    headline, sentence = headline_of(results)
    parts = [tag("p", sentence), tag("p", f"{caption(results)}.", "soft")]
    late = any(row.status == NOT_RUN for row in results.rows)
    if not climb.ended or late or results.rounds_begun < climb.rounds:
        why = "Its time ran out" if climb.ended else "It is not finished"
        why += f", in round {results.rounds_begun} of {climb.rounds}. To go on:"
        how = f"ladder climb --resume {'/'.join(folder.resolve().parts[-2:])}"
        parts.append(tag("p", [why, tag("code", how)], "warning"))
    if any(row.loss_change for row in results.ran):
        parts.append(both(partial(draw_losses, results)))
    parts.append(both(partial(draw_climb, results)))
    parts.append(table_html(table(results.rows, columns(results))))
    parts += [tag("p", note, "soft") for note in footnotes(results)]
    parts.append(tag("p", "Each script: its note as it reads today, and its diff as it ran:"))
    parts += rungs_html(results, with_logs)
    headline += f" on {climb.device}"
    return Section(folder.resolve().name, headline, tag("div", parts))


def rungs_html(results: Results, with_logs: bool) -> list[Markup]:
    """What is behind each row: the note of its script, its diff and its logs."""
    climb = results.climb
    logs = climb.logs() if with_logs else {}
    shown = []
    with tempfile.TemporaryDirectory() as scratch:
        scripts = scripts_of(climb, Path(scratch))
        for row in results.rows:
            script = scripts.get(row.stem)
            inside = [terms(facts(row, script))]
            if row.base and climb.kind != "transformers":  # which is no rung's neighbour
                inside.append(tag("p", f"Diff from {row.base.title}:", "soft"))
                inside.append(diff_html(scripts.get(row.base.stem), script))
            for k, text in sorted(logs.get(row.name, {}).items()):
                inside.append(details(f"{stem_of(row.name, k)}.log", [tag("pre", text)]))
            shown.append(details(row.title, inside))
    return shown


def facts(row: Row, path: Path | None) -> dict[str, str]:
    """The note of a script, and what ran, by headings."""
    found = {"Script": "not in the folder of the climb"}
    if path:
        found = describe(path) or {"Docstring": docstring(path)}  # it may not be one of ours
    if row.logs:
        found["What ran"] = pairs_line("", row.log.effective)
    return found
