"""One HTML page to look at: a climb's rungs, each with its diff and logs, or
training curves.

    ladder report                       your five newest climbs in runs/, else
                                        the published ones
    ladder report runs/climb-… --open   this one, opened in the browser
    ladder report checkpoints/…         a run of ddp_run.py, or several

The page is a single file that asks for nothing from elsewhere: keep it, mail
it, open it from disk. A climb --without stands beside the climb of the same
machine and settings. A run may be under way. Its log will do instead of its
folder of checkpoints, or a published runs.log; a run of --steps 0 becomes a
line to beat.
"""

import webbrowser
from datetime import datetime
from pathlib import Path

from ladder.errors import UsageError
from ladder.files import ROOT, write_atomic
from ladder.measure.folder import PACKED
from ladder.show.console import screen
from ladder.show.gather import Gathered, gather
from ladder.show.page import MARKER, climb_section, page
from ladder.show.training import distinct_names, training_section
from ladder.text import printable


def add_arguments(parser):
    what = "folders of climbs, folders of checkpoints or logs"
    parser.add_argument("paths", nargs="*", type=Path, help=what)
    default = Path("report.html")
    parser.add_argument("--out", type=Path, default=default, help="default: report.html")
    parser.add_argument("--open", action="store_true", help="open it in the browser")


def run(args) -> int:
    """Write the page and say what went in. Returns 0; raises UsageError and writes nothing if it
    cannot be made."""
    climbs = []
    runs = []
    for path in args.paths:
        folder = path.parent if path.name.startswith(PACKED) else path
        if (folder / "climb.json").is_file():
            climbs.append(gather(folder))
        else:
            runs.append(path)
    if not args.paths:
        own = sorted(Path("runs").glob("*/climb.json"), key=lambda path: path.stat().st_mtime)
        climbs = newest(own) or newest(sorted(ROOT.glob("logs/*/climb.json")))
        if not climbs:
            raise UsageError("no climb in logs/ or runs/: run `ladder climb`, or name a folder")
    if args.out.exists() and not is_page(args.out):
        raise UsageError(f"{args.out} is not a page of ladder report: choose another --out")
    console = screen()
    sections = []
    if runs:
        section, left_out = training_section(runs)
        sections.append(section)
        for why in left_out:
            console.say(printable(f"left out: {why}"))
    names = distinct_names([found.folder for found in climbs])
    for found, name in zip(climbs, names, strict=True):
        found.id = name
        sections.append(climb_section(found, without_of(found, climbs)))
    write_atomic(args.out, page(sections, f"{datetime.now():%Y-%m-%d %H:%M}").encode())
    for section in sections:
        console.say(printable(f"{section.id}: {section.label}"))
    print(f"written: {args.out} (for a browser)")
    if args.open:
        webbrowser.open(args.out.resolve().as_uri())
    return 0


def is_page(path: Path) -> bool:
    """Whether this command wrote this file."""
    return path.is_file() and MARKER in path.read_text("utf-8", "replace")[:1000]


def without_of(found: Gathered, climbs: list[Gathered]) -> Gathered | None:
    """The first climb --without on a climb's machine at its model, B, T and text."""
    if found.climb.comparison.against == "previous":
        for other in climbs:
            if other.climb.comparison.against == "top" and other.settings == found.settings:
                return other
    return None


def newest(paths: list[Path]) -> list[Gathered]:
    """The last five of these climbs that can be shown, from the last on."""
    climbs = []
    for path in paths[:-6:-1]:
        try:
            climbs.append(gather(path.parent))
        except UsageError as error:
            print(printable(f"left out: {error}"))
    return climbs
