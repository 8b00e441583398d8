"""The page of `ladder report`, and docs/index.html: climbs and training runs as HTML.

What a log or a script says is text: `Markup.format` and `Markup.join` escape all they are given
that is not HTML already. The page runs no script and asks for nothing from elsewhere.
"""

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup, escape

from ladder.errors import UsageError
from ladder.measure.climb import Climb, climb_logs
from ladder.measure.rows import COMPARABLE, Row, index_of_base, read_climb
from ladder.measure.work import LABELS
from ladder.show import chart, measured
from ladder.show.gather import diff_of, fields_of, scripts_of
from ladder.show.tables import (
    caption,
    columns,
    footnotes,
    name_of,
    sizes,
    table,
    title_of,
    warnings,
)

HERE = Path(__file__).parent
BESIDE = ("commit", "python", "steps")  # may differ between a climb and one --without beside it
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
        style=Markup(chart.style({*chart.COLORS}) + HERE.joinpath("report.css").read_text("utf-8")),
        links=Markup("<nav>{}</nav>").format(join(links)) if len(links) > 1 else "",
        sections=join(parts),
        made=f" on {made}" if made else "",
    )


# ------------------------------------------------------------------ pieces of HTML


def join(parts: list) -> Markup:
    """The parts, those that are not HTML escaped."""
    return Markup("\n").join(parts)


def paragraphs(texts: list[str], css_class="") -> Markup:
    """A paragraph for each text."""
    return join([Markup('<p class="{}">{}</p>').format(css_class, text) for text in texts])


def heading(text: str) -> Markup:
    """A heading inside of a section."""
    return Markup("<h3>{}</h3>").format(text)


def prose(text: str) -> Markup:
    """A docstring's text; what stands between backticks is code."""
    return Markup(re.sub("`(.+?)`", r"<code>\1</code>", str(escape(text))))


def terms(pairs: dict[str, str]) -> Markup:
    """Words by their headings; what is empty is not said."""
    term = Markup("<div><dt>{}</dt><dd>{}</dd></div>")
    shown = [term.format(name, text) for name, text in pairs.items() if text]
    return Markup("<dl>{}</dl>").format(join(shown))


def pairs(them: dict[str, str]) -> str:
    """`key: value; key: value`."""
    return "; ".join(f"{key}: {value}" for key, value in them.items())


def details(summary: str, inside: Markup, id="") -> Markup:
    """What opens. An address that ends with #id opens it, as the id is inside."""
    folded = Markup('<details><summary>{}</summary><div id="{}">{}</div></details>')
    return folded.format(summary, id, inside)


def both(draw: Callable) -> Markup:
    """A picture wide and narrow: the style shows the one that the screen has room for."""
    wide = Markup(draw(chart.WIDE).svg(inline=True))
    narrow = Markup(draw(chart.NARROW).svg(inline=True))
    shown = Markup('<div class="wide">{}</div><div class="narrow">{}</div>')
    return shown.format(wide, narrow)


def diff_html(lines: list[str]) -> Markup:
    """A diff, a line an element."""
    names = {"+": "add", "-": "del", "@": "soft"}
    shown = []
    for line in lines:
        css_class = names.get(line[:1], "")
        shown.append(Markup('<span class="{}">{}</span>').format(css_class, line))
    return Markup('<pre class="diff" tabindex="0"><code>{}</code></pre>').format(join(shown))


def table_html(lines: list[list]) -> Markup:
    """A table of cells as ladder.show.tables makes them."""
    head, *body = lines
    html = [row_html("th", head)]
    for line in body:
        html.append(row_html("td", line))
    return Markup('<div class="scroll" tabindex="0"><table>{}</table></div>').format(join(html))


def row_html(element: str, cells: list) -> Markup:
    """One row of a table."""
    cell = Markup(f"<{element}>{{}}</{element}>")
    return Markup("<tr>{}</tr>").format(join([cell.format(one.text) for one in cells]))


# ------------------------------------------------------------------ a climb


@dataclass
class Gathered:
    """A climb that can be shown."""

    folder: Path
    id: str
    climb: Climb
    rows: list[Row]

    @property
    def ran(self) -> list[Row]:
        """The rows that have logs."""
        return [row for row in self.rows if row.logs]

    @property
    def settings(self) -> list:
        """What it has in common with a climb --without beside it."""
        run = self.ran[0].log.run
        return [run.get(key) for key in COMPARABLE if key not in BESIDE]


def gather(folder: Path) -> Gathered:
    """A climb. Raises UsageError if it is none, or nothing of it can be shown."""
    found = Gathered(folder, folder.resolve().name, *read_climb(folder))
    if not found.ran:
        raise UsageError(f"{folder} cannot be shown: none of its runs has ended well yet")
    return found


def climb_section(found: Gathered, without: Gathered | None = None, with_logs=True) -> Section:
    """The section of a climb, with a climb --without beside it."""
    climb, rows, ran = found.climb, found.rows, found.ran
    run = ran[0].log.run
    headline, sure = measured.verdict(climb, ran)
    learned = [row for row in ran if row.loss]
    losses = Markup("")
    if any(row.loss_change for row in learned):
        headline, losses = losses_html(found, learned)
    alone = {}
    if without:
        alone = {row.stem.removeprefix("without_"): row for row in without.rows}
    link = f"#{found.id}/"
    parts = [
        paragraphs([f"{caption(climb, ran)}."], "soft"),
        paragraphs(notices(climb, rows), "warning"),
        losses,
        heading("Speed"),
        paragraphs([sure]),
        paragraphs(legend(climb, ran, alone), "soft"),
        both(lambda width: measured.draw_climb(climb, rows, width, alone, link)),
        rungs_html(found, with_logs),
        heading("All numbers"),
        table_html(table(rows, columns(climb, rows))),
        paragraphs(footnotes(climb, rows), "soft"),
        heading("How it was measured"),
        terms(facts(found)),
    ]
    what = f"{climb.comparison.what}: {title_of(rows[0])} to {title_of(rows[-1])}"
    label = (
        f"{run['device']}, {climb.started}, {run['model']}, B={sizes(ran)}, T={run['T']}, {what}"
    )
    return Section(found.id, label, f"{headline} on {run['device']}", join(parts))


def notices(climb: Climb, rows: list[Row]) -> list[str]:
    """What stands above the numbers: a climb that has not ended, a busy machine."""
    lines = warnings(climb)
    if not climb.ended:
        done = sum(len(row.logs) for row in rows)
        lines.insert(0, f"not finished: {done} of {climb.rounds * len(rows)} runs are in")
    return lines


def legend(climb: Climb, ran: list[Row], alone: dict) -> list[str]:
    """What is drawn below."""
    lines = []
    if any(row.gain for row in ran):
        lines.append(DOTS.format(climb.comparison.gain_heading))
    if alone:
        lines.append(ALONE)
    if not any(row.roofline for row in ran):
        lines.append(NO_ROOFLINE)
    return lines


def losses_html(found: Gathered, rows: list[Row]) -> tuple[str, Markup]:
    """What the rungs do to the loss, in words and in pictures."""
    said, sure = measured.loss_verdict(rows)
    link = f"#{found.id}/"
    parts = [
        heading("Loss"),
        paragraphs([sure]),
        paragraphs([DOTS.format(found.climb.comparison.loss_heading)], "soft"),
        both(lambda width: measured.draw_losses(found.climb, rows, width, link)),
        both(lambda width: measured.draw_loss_curves(rows, width)),
    ]
    return said, join(parts)


def rungs_html(found: Gathered, with_logs: bool) -> Markup:
    """What is behind each row: its change and why, its diff and its logs."""
    logs = climb_logs(found.folder, found.climb) if with_logs else {}
    shown = []
    with tempfile.TemporaryDirectory() as scratch:
        scripts = scripts_of(found.folder, found.climb, Path(scratch))
        for index, row in enumerate(found.rows):
            base = base_row(found, index)
            inside = rung_html(row, base, scripts)
            for k in sorted(row.logs):
                if (row.name, k) in logs:
                    log = Markup("<pre>{}</pre>").format(logs[row.name, k])
                    inside += details(f"{row.name}.r{k}.log", log)
            summary = f"{name_of(row)} {measured.gain_in_words(row.gain)}"
            shown.append(details(summary, inside, f"{found.id}/{row.name}"))
    return join(shown)


def base_row(found: Gathered, index: int) -> Row | None:
    """The row whose script a row's diff begins with."""
    against = found.climb.comparison.against
    if index and against == "previous":
        return found.rows[index_of_base(found.rows, index)]
    if index and against == "top":
        return found.rows[0]
    return None


def rung_html(row: Row, base: Row | None, scripts: dict[str, Path]) -> Markup:
    """What a script says of itself, what ran, and its diff."""
    path = scripts.get(row.stem)
    parts = []
    if row.failure:
        parts.append(paragraphs([row.status_in_full]))
    if not path:
        parts.append(paragraphs(["Its script is not in the folder of the climb."]))
    else:
        fields = fields_of(path)
        parts.append(paragraphs([prose(fields.get("Change", ""))], "lead"))
        parts.append(paragraphs([prose(fields.get("Why", ""))]))
        parts.append(terms({"Numerics": prose(fields.get("Numerics", ""))}))
    ran = {}
    if row.logs:
        ran["What ran"] = pairs(row.log.effective)
    if row.roofline:
        parts_ms = [f"{name} {ms:.1f} ms" for name, ms in zip(LABELS, row.roofline, strict=True)]
        whole = f"together {sum(row.roofline):.1f}, measured {row.ms:.1f}"
        ran["Roofline"] = f"{', '.join(parts_ms)}: {whole}"
    parts.append(terms(ran))
    if base:
        diff = diff_of(scripts.get(base.stem), path)
        if diff:
            parts.append(paragraphs([f"Diff from {title_of(base)}, docstrings left out:"], "soft"))
            parts.append(diff_html(diff))
    return join(parts)


def facts(found: Gathered) -> dict[str, str]:
    """How a climb was measured, in words by their headings."""
    climb = found.climb
    log = found.ran[0].log
    run = log.run
    return {
        "System": f"{run['device']}, {climb.system}, {climb.cores} cores",
        "Clocks": pairs(climb.clocks),
        "Versions": pairs(climb.versions),
        "Text": f"{run['data']}, SHA-256 {run.get('data_sha256')}…",
        "Rounds": f"{climb.rounds_begun}, interleaved",
        "Steps": f"{log.warmup_steps} for warm-up, left out; {log.measured_steps} measured",
        "Raw logs": found.id,
        "Flags": " ".join(climb.flags),
    }
