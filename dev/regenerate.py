"""Make every generated file again: run it before you commit.

    python dev/regenerate.py

The counts of each script whose code has changed (ladder/measure/work.json), what is known of each
card (ladder/show/known.json), the blocks between markers in every page, and the pictures in docs/.
It takes seconds, and up to two minutes if all scripts have changed. A rung of the ten that no climb
has yet gets a row without a gain.
"""

import sys
from pathlib import Path

from blocks import render
from count_work import count_changed
from pictures import pictures
from reports import known_json

from ladder.cli import Parser
from ladder.commands.main import program
from ladder.files import ROOT, require_own, write_atomic


def run(argv: list[str]):
    Parser(__doc__).parse_args(argv)
    require_own(Path(__file__))
    count_changed()
    write_atomic(ROOT / "ladder" / "show" / "known.json", known_json().encode())
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "beyond" / "README.md"]:
        write_atomic(path, render(path.read_text(encoding="utf-8")).encode())
    for name, picture in pictures().items():
        write_atomic(ROOT / "docs" / name, picture.encode())
    print("done: git status says what has changed")


if __name__ == "__main__":
    raise SystemExit(program(run, sys.argv[1:]))
