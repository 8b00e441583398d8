"""One HTML page to look at: climbs as charts, every rung with its diff, losses and raw logs.

    ladder report                       your five newest climbs in runs/, and the published ones
    ladder report runs/climb-… --open   this one, opened in the browser

The page is a single file that asks for nothing from elsewhere: keep it, mail it, open it from disk.
An ablation stands beside the climb of the same machine and settings.
"""

import webbrowser
from datetime import datetime
from pathlib import Path

from ladder.commands.publish import BLOCK
from ladder.errors import BadInput
from ladder.files import ROOT, write_atomic
from ladder.show.gather import gather
from ladder.show.page import page
from ladder.text import printable

MARKER = '<meta name="generator" content="ladder report">'


def add_arguments(parser):
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="of a climb")
    default = Path("report.html")
    parser.add_argument("--out", type=Path, default=default, help="default: report.html")
    parser.add_argument("--open", action="store_true", help="open it in the browser")


def run(args) -> int:
    """Write the page and say what went in. Returns 0; raises BadInput and writes nothing if it
    cannot be made."""
    climbs = [gather(folder) for folder in args.folders] or gather_default()
    if not climbs:
        raise BadInput("no climb in logs/ or runs/: run `ladder climb` first, or name a folder")
    ablations = [climb for climb in climbs if climb["kind"].against == "first"]
    for climb in climbs:  # beside it stands the first one of its machine, model, B, T and text
        same = (one for one in ablations if one["settings"] == climb["settings"])
        climb["ablation"] = next(same, None) if climb["kind"].against == "above" else None
    old = args.out.read_text("utf-8", "replace")[:1000] if args.out.is_file() else ""
    if args.out.exists() and MARKER not in old:
        raise BadInput(f"{args.out} is not a page of ladder report: choose another --out")
    write_atomic(args.out, page(climbs, f"{datetime.now():%Y-%m-%d %H:%M}").encode())
    for climb in climbs:
        print(printable(f"{climb['folder']}: {climb['label']}"))
    print(f"written: {args.out}")
    if args.open:
        webbrowser.open(args.out.resolve().as_uri())
    return 0


def gather_default() -> list[dict]:
    """The five newest climbs under runs/ and the published ones; those with nothing to compare come
    last."""
    pages = "".join((ROOT / name).read_text("utf-8") for name in ("README.md", "RUNLOG.md"))
    named = (match["folders"].split() for match in BLOCK.finditer(pages))
    known = dict.fromkeys(ROOT / folder for folders in named for folder in folders)
    published = {path.read_bytes() for path in (ROOT / "logs").glob("*/climb.json")}
    own = [path for path in Path("runs").glob("*/climb.json") if path.read_bytes() not in published]
    own.sort(key=lambda path: -path.stat().st_mtime)
    climbs = []
    for folder in [*(path.parent for path in own[:5]), *known]:
        try:
            climbs.append(gather(folder))
        except BadInput as error:
            print(printable(f"left out: {error}"))
    return sorted(climbs, key=lambda one: not any(rung["row"].gain for rung in one["rungs"]))
