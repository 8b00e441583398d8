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
from ladder.show.gather import ClimbSection, gather
from ladder.show.page import page
from ladder.show.training import distinct_names, training_section
from ladder.text import printable

MARKER = '<meta name="generator" content="ladder report">'


def add_arguments(parser):
    what = "folders of climbs, folders of checkpoints or logs"
    parser.add_argument("paths", nargs="*", type=Path, help=what)
    default = Path("report.html")
    parser.add_argument("--out", type=Path, default=default, help="default: report.html")
    parser.add_argument("--open", action="store_true", help="open it in the browser")


def run(args) -> int:
    """Write the page and say what went in. Returns 0; raises UsageError and writes nothing if it
    cannot be made."""
    folders = []
    runs = []
    for path in args.paths:
        folder = path.parent if path.name.startswith(PACKED) else path
        if (folder / "climb.json").is_file():
            folders.append(folder)
        else:
            runs.append(path)
    climbs = [gather(folder) for folder in folders]
    for section, name in zip(climbs, distinct_names(folders), strict=True):
        section.id = name
    if not args.paths:
        climbs = gather_default()
    for section in climbs:
        section.without = without_of(section, climbs)
    sections = climbs
    if runs:
        sections = [training_section(runs), *climbs]
    if not sections:
        raise UsageError("no climb in logs/ or runs/: run `ladder climb` first, or name a folder")
    if args.out.exists() and not is_page(args.out):
        raise UsageError(f"{args.out} is not a page of ladder report: choose another --out")
    write_atomic(args.out, page(sections, f"{datetime.now():%Y-%m-%d %H:%M}").encode())
    console = screen()
    if runs:
        for why in sections[0].left_out:
            console.say(printable(f"left out: {why}"))
    for section in sections:
        console.say(printable(f"{section.id}: {section.label}"))
    print(f"written: {args.out} (for a browser)")
    if args.open:
        webbrowser.open(args.out.resolve().as_uri())
    return 0


def is_page(path: Path) -> bool:
    """Whether this command wrote this file."""
    return path.is_file() and MARKER in path.read_text("utf-8", "replace")[:1000]


def without_of(section: ClimbSection, sections: list[ClimbSection]) -> ClimbSection | None:
    """The first climb --without on a climb's machine at its model, B, T and text, to stand beside
    it."""
    if section.climb.comparison.against != "previous":
        return None
    for other in sections:
        if other.climb.comparison.against == "top" and other.settings == section.settings:
            return other
    return None


def gather_default() -> list[ClimbSection]:
    """The five newest climbs under runs/; where none can be shown, the five newest published
    ones."""
    own = sorted(Path("runs").glob("*/climb.json"), key=lambda path: path.stat().st_mtime)
    return gather_all(own[-5:]) or gather_all(sorted((ROOT / "logs").glob("*/climb.json"))[-5:])


def gather_all(paths: list[Path]) -> list[ClimbSection]:
    """The climbs at these paths that can be shown, from the last to the first."""
    sections = []
    for path in reversed(paths):
        try:
            sections.append(gather(path.parent))
        except UsageError as error:
            print(printable(f"left out: {error}"))
    return sections
