"""The page of `ladder report`, and of docs/: report.html laid out."""

import base64
import hashlib
import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from ladder.show import colors
from ladder.show.draw import grid, part_times
from ladder.show.measured import draw_climb
from ladder.show.training import facts

HERE = Path(__file__).parent
# What a log or a script says enters the page as text: the template escapes all it is given.
TEMPLATES = Environment(
    loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)


def page(sections: list, made: str) -> str:
    """The whole page; `made` says when, and may be empty.

    A section is a ClimbSection, a TrainingSection, or the story of the ladder: that stands first,
    `shows` "learn", and brings its own HTML, style and script.
    """
    learn = None
    others = sections
    if sections[0].shows == "learn":
        learn, *others = sections
    style = HERE.joinpath("report.css").read_text("utf-8")
    script = HERE.joinpath("report.js").read_text("utf-8")
    if learn:
        style += learn.style
        script += learn.script
    return TEMPLATES.get_template("report.html").render(
        learn=learn,
        others=others,
        made=made,
        colors=colors,
        style=style,
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def prose(text: str) -> Markup:
    """A docstring's text, escaped; what stands between backticks is code."""
    return Markup(re.sub("`(.+?)`", r"<code>\1</code>", str(escape(text))))


TEMPLATES.filters.update(
    prose=prose, grid=grid, part_times=part_times, drawn=draw_climb, facts=facts
)
