"""One HTML page to look at: a climb's rungs, each with its diff and logs, or
training curves.

    ladder report                       your newest climb, or run of ddp_run.py
    ladder report runs/climb-… --open   this one, opened in the browser
    ladder report checkpoints/…         a run of ddp_run.py, or several

The page is a single file that asks for nothing from elsewhere: keep it, mail
it, open it from disk. A run may be under way. Its log will do instead of its
folder of checkpoints; a run of --steps 0 becomes a line to beat.
"""

import webbrowser
from pathlib import Path

from ladder.errors import UsageError
from ladder.files import write_atomic
from ladder.show.page import MARKER, climb_section, page
from ladder.show.training import training_section
from ladder.text import show


def add_arguments(parser):
    what = "folders of climbs, folders of checkpoints or logs"
    parser.add_argument("paths", nargs="*", type=Path, help=what)
    parser.add_argument("--out", type=Path, default="report.html", help="default: report.html")
    parser.add_argument("--open", action="store_true", help="open it in the browser")


def run(args) -> int:
    """Write the page and say what went in. Returns 0; raises UsageError and writes nothing if it
    cannot be made."""
    if args.out.exists() and MARKER not in args.out.read_text("utf-8", "replace")[:1000]:
        raise UsageError(f"{args.out} is not a page of ladder report: choose another --out")
    climbs = []
    runs = []
    for path in args.paths or [newest()]:
        if (path / "climb.json").is_file():
            climbs.append(climb_section(path))
        else:
            runs.append(path)
    sections = [training_section(runs)] if runs else []
    sections += climbs
    for section in sections:
        show(f"{section.id}: {section.headline}")
    write_atomic(args.out, page(sections).encode())
    show(f"written: {args.out} (for a browser)")
    if args.open:
        webbrowser.open(args.out.resolve().as_uri())
    return 0


def newest() -> Path:
    """The folder of the climb or the run that was at work last. Raises UsageError."""
    files = [*Path("runs").glob("*/climb.json"), *Path("checkpoints").glob("*/*_run-*.log")]
    if not files:
        raise UsageError("no climb is in runs/, and no run in checkpoints/: name one")
    return max(files, key=lambda path: path.stat().st_mtime).parent
