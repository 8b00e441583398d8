"""One HTML page to look at: climbs as charts, every rung with its diff, losses and raw logs.

    ladder report                       the climbs in README.md and the newest one under runs/
    ladder report runs/climb-… --open   this one, opened in the browser

The page is a single file that asks for nothing from elsewhere: keep it, mail it, open it from disk.
An ablation stands beside the climb of the same machine and settings; of several climbs only gains
are compared. What `ladder profile` left under logs/ or runs/ is shown with the rungs it belongs to.
"""

import json
import webbrowser
from datetime import datetime
from pathlib import Path

from ladder.commands.gather import gather
from ladder.commands.publish import BLOCK
from ladder.errors import BadInput
from ladder.files import ROOT, write_whole

TEMPLATE = Path(__file__).with_name("report.html")  # report.css and report.js go into it
MARKER = '<meta name="generator" content="ladder report">'
LARGEST = 2_000_000  # bytes of a page


def add_arguments(parser):
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="of a climb")
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="(report.html)")
    parser.add_argument("--open", action="store_true", help="open it in the browser")


def run(args) -> int:
    """Write the page and say what went in. Returns 0; raises BadInput and writes nothing if it
    cannot be made."""
    climbs = [gather(folder) for folder in args.folders] or gather_default()
    if not climbs:
        raise BadInput("no climb in logs/ or runs/: run `ladder climb` first, or name a folder")
    name_and_pair(climbs)
    write(args.out, page(climbs))
    for climb in climbs:
        beside = f" (beside {climb['beside']})" if climb["beside"] else ""
        print(f"{climb['folder']}: {climb['label']}{beside}")
    print(f"written: {args.out}")
    if args.open:
        webbrowser.open(args.out.resolve().as_uri())
    return 0


def write(path: Path, page: bytes) -> None:
    """Raises BadInput where the page cannot go, or would replace a file that is no such page."""
    try:
        if not path.parent.is_dir():
            raise BadInput(f"cannot write {path}: there is no such folder")
        if path.exists() and MARKER not in path.read_text("utf-8", errors="replace")[:1000]:
            raise BadInput(f"{path} is no page of ladder report: choose another --out")
        write_whole(path, page)
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}") from error


def gather_default() -> list[dict]:
    """The climbs that README.md names and the newest under runs/ that is not published yet."""
    blocks = BLOCK.finditer((ROOT / "README.md").read_text(encoding="utf-8"))
    named = dict.fromkeys(block["folder"] for block in blocks if block["folder"] != "none")
    climbs = [gather(ROOT / folder) for folder in named]
    published = {path.read_bytes() for path in (ROOT / "logs").glob("*/climb.json")}
    found = sorted(Path("runs").glob("*/climb.json"), key=lambda path: path.stat().st_mtime)
    folders = [path.parent for path in found if path.read_bytes() not in published]
    fresh = [folder for folder in folders if any(folder.glob("*.r*.log"))]
    try:
        climbs += [gather(folder) for folder in fresh[-1:]]
    except BadInput as error:
        print(f"left out: {error}")
    return climbs


def name_and_pair(climbs: list[dict]) -> None:
    """Give each climb an id of its own, and each ablation that of the climb it stands beside: of
    the same machine, model, B, T and text; of several, of the same commit, or else the longest."""
    taken = set()
    for climb in climbs:
        climb["id"] = Path(climb["folder"]).name
        while climb["id"] in taken:
            climb["id"] += "-2"
        taken.add(climb["id"])
    for ablation in (climb for climb in climbs if climb["against"] == "first"):
        key = ("above", ablation["settings"])
        if same := [c for c in climbs if (c["against"], c["settings"]) == key]:
            best = max(same, key=lambda c: (c["commit"] == ablation["commit"], len(c["rows"])))
            if all(other["beside"] != best["id"] for other in climbs):
                ablation["beside"] = best["id"]  # a second one has an option of its own


def page(climbs: list[dict]) -> bytes:
    """The whole page. Raises BadInput if it is too large even with one log a rung."""
    made = f"{datetime.now():%Y-%m-%d %H:%M}"
    less = "To keep the page small, "
    notes = {None: "", 1: f"{less}only the first run's.", 0: f"{less}the logs are left out."}
    for kept, note in notes.items():
        for row in (row for climb in climbs for row in climb["rows"]):
            row["logs"] = row["logs"][:kept]
        text = render({"made": made, "climbs": climbs, "logs_note": note})
        if len(text) < LARGEST:
            return text
    raise BadInput(f"a page of {len(climbs)} climbs is over {LARGEST:,} bytes: name fewer folders")


def render(data: dict) -> bytes:
    """The template with its data. Nothing in them can end the script element they stand in."""
    try:
        text = json.dumps(data, allow_nan=False, separators=(",", ":"))  # ASCII: no U+2028
    except ValueError as error:
        raise BadInput("a log has a loss or a time that is no finite number") from error
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    style, script = (TEMPLATE.with_suffix(kind).read_text("utf-8") for kind in (".css", ".js"))
    made = TEMPLATE.read_text("utf-8").replace("{{style}}", style).replace("{{script}}", script)
    return made.replace("{{data}}", text).encode()  # last: what stands in it is not replaced
