"""One HTML page to look at: a climb's rungs, each with its diff and logs, or
training curves.

    ladder report                       your newest climb, or run of train.py
    ladder report runs/climb-… --open   this one, opened in the browser
    ladder report checkpoints/…         a run of train.py, or several

The page is a single file that asks for nothing from elsewhere: keep it, mail
it, open it from disk. A run may be under way. Its log will do instead of its
folder of checkpoints; a run of --steps 0 becomes a line to beat.
"""

import argparse
import webbrowser
from contextlib import suppress
from datetime import timezone
from pathlib import Path

from ladder import cli
from ladder.disk import runs_by_time, write_atomic
from ladder.errors import UsageError
from ladder.measure.folder import Climb
from ladder.show.page import MARKER, climb_section, page
from ladder.show.training import training_section
from ladder.text import say


def add_arguments(parser: argparse.ArgumentParser):
    parser.add_argument(
        "paths",
        nargs="*",
        type=cli.path,
        help="folders of climbs, folders of checkpoints or logs",
    )
    parser.add_argument("--out", type=cli.path, default="report.html", help="default: report.html")
    parser.add_argument("--open", action="store_true", help="open it in the browser")


def main(args: argparse.Namespace) -> int:
    """Write the page and say what went in. Returns 0; raises UsageError and writes nothing if it
    cannot be made."""
    out = Path(args.out)
    if out.exists() and MARKER not in out.read_text("utf-8", "replace")[:1000]:
        raise UsageError(f"{out} is not a page of ladder report: choose another --out")
    climbs = []
    runs = []
    for path in map(Path, args.paths or [newest()]):
        if (path / "climb.json").is_file():
            climbs.append(climb_section(path))
        else:
            runs.append(path)
    sections = [training_section(runs)] if runs else []
    sections += climbs
    for section in sections:
        say(f"{section.id}: {section.headline}")
    write_atomic(out, page(sections))
    say(f"written: {out} (for a browser)")
    if args.open:
        webbrowser.open(out.resolve().as_uri())
    return 0


def newest() -> Path:
    """The folder of the climb or the run that began last. Raises UsageError."""
    found = runs_by_time()
    for path in Path("runs").glob("*/climb.json"):
        with suppress(UsageError):
            began = Climb.read_from(path.parent).began.astimezone(timezone.utc)
            found[f"{began:%Y%m%d-%H%M}-{path}"] = path.parent
    if not found:
        raise UsageError("no climb is in runs/, and no run in checkpoints/: name one")
    return found[max(found)]
