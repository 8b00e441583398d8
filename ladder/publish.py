"""Tables in README.md and RUNLOG.md: each stands between markers that name its raw logs."""

import re
from pathlib import Path

from ladder.results import read_climb
from ladder.scripts import ROOT
from ladder.tables import markdown

TABLE = re.compile(r"<!-- table (?P<folder>\S+) -->\n.*?<!-- end -->", flags=re.DOTALL)


def render(text: str) -> str:
    """`text` with every table between markers made anew from the logs that the marker names."""

    def table(match: re.Match) -> str:
        _, rows = read_climb(ROOT / match["folder"])
        return f"<!-- table {match['folder']} -->\n{markdown(rows)}<!-- end -->"

    return TABLE.sub(table, text)


def refresh(path: Path) -> None:
    """Rewrite the tables of one file in place."""
    path.write_text(render(path.read_text(encoding="utf-8")), encoding="utf-8")
