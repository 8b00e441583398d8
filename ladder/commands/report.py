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
import os
import sys
import webbrowser
from datetime import timezone
from pathlib import Path

from ladder import cli
from ladder.disk import write_atomic
from ladder.errors import UsageError
from ladder.log import runs_by_time
from ladder.measure.folder import Climb
from ladder.show.page import MARKER, climb_section, page
from ladder.show.training import training_section
from ladder.text import say

SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")  # one of them is set where a browser can open


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
    # Without a screen only browsers like lynx are there: they would take the terminal.
    screen = sys.platform != "linux" or any(map(os.environ.get, SCREENS))
    if args.open and not (screen and webbrowser.open(out.resolve().as_uri())):
        say("note  no browser is open: there is no screen here, or no browser")
    return 0


def newest() -> Path:
    """The folder of the climb or the run that began last. Raises UsageError."""
    runs = runs_by_time()
    climbs = {}
    for path in Path("runs").glob("*/climb.json"):
        try:
            began = Climb.read_from(path.parent).began.astimezone(timezone.utc)
            climbs[f"{began:%Y%m%d-%H%M}-{path}"] = path.parent
        except UsageError as error:
            say(f"note  {error}; it is left out")
    found = runs | climbs
    if not found:
        raise UsageError("no climb is in runs/, and no run in checkpoints/: name one")
    taken = found[max(found)]
    for kind in filter(None, (runs, climbs)):
        other = kind[max(kind)]
        if other != taken:
            say(f"note  this is {taken}, which began last; also there: {other}")
    return taken
