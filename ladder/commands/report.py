"""One HTML page to look at: climbs as charts, every rung with its diff, losses and raw logs.

    ladder report                       your newest climbs under runs/, and the published ones
    ladder report runs/climb-… --open   this one, opened in the browser

The page is a single file that asks for nothing from elsewhere: keep it, mail it, open it from disk.
An ablation stands beside the climb of the same machine and settings; of several climbs only gains
are compared. What `ladder profile` left under logs/ or runs/ is shown with the rungs it belongs to.
"""

import webbrowser
from datetime import datetime
from pathlib import Path

from ladder.commands.gather import gather
from ladder.commands.page import page
from ladder.commands.publish import BLOCK
from ladder.commands.results import LARGEST_FACTS, read_facts
from ladder.errors import BadInput
from ladder.files import ROOT, regular, write_whole
from ladder.log import printable

MARKER = '<meta name="generator" content="ladder report">'


def add_arguments(parser):
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="of a climb")
    parser.add_argument(
        "--out", type=Path, default=Path("report.html"), help="default: report.html"
    )
    parser.add_argument("--open", action="store_true", help="open it in the browser")


def run(args) -> int:
    """Write the page and say what went in. Returns 0; raises BadInput and writes nothing if it
    cannot be made."""
    climbs = [gather(folder) for folder in args.folders] or gather_default()
    if not climbs:
        raise BadInput("no climb in logs/ or runs/: run `ladder climb` first, or name a folder")
    name_and_pair(climbs)
    text = page(climbs, f"{datetime.now():%Y-%m-%d %H:%M}")
    if regular(args.out).exists() and MARKER not in args.out.read_text("utf-8", "replace")[:1000]:
        raise BadInput(f"{args.out} is not a page of ladder report: choose another --out")
    write_whole(args.out, text.encode("utf-8", "replace"))  # a name may not be UTF-8
    for climb in climbs:
        print(printable(f"{climb['folder']}: {climb['label']}"))
    print(f"written: {args.out}")
    if args.open:
        webbrowser.open(args.out.resolve().as_uri())
    return 0


def gather_default() -> list[dict]:
    """The newest climb under runs/ of each kind, machine, first rung and settings, then the
    published ones of each."""
    kept = {path.read_bytes() for path in (ROOT / "logs").glob("*/climb.json") if path.is_file()}
    own = [path for path in Path("runs").glob("*/climb.json") if path.is_file()]
    own = [p for p in own if p.stat().st_size > LARGEST_FACTS or p.read_bytes() not in kept]
    own = [path.parent for path in own if any(path.parent.glob("*.log"))]
    own.sort(key=lambda folder: -(folder / "climb.json").stat().st_mtime)
    climbs, seen, known = [], set(), published()
    for folder in own + known:
        try:
            facts = read_facts(folder)
            flags = [flag for flag in facts["flags"] if not flag.startswith("--steps")]
            start = facts["scripts"][0] if facts["kind"] == "climb" else None
            key = folder in known, facts["kind"], facts["device"], start, *flags
            if key not in seen:
                climbs.append(gather(folder))
                seen.add(key)
        except BadInput as error:
            print(printable(f"left out: {error}"))
    return climbs


def published() -> list[Path]:
    """The climbs in README.md, then those in RUNLOG.md, without its negative results."""
    entries = (ROOT / "RUNLOG.md").read_text(encoding="utf-8").split("\n## ")
    kept = [text for text in entries if not text.partition("\n")[0].endswith("(negative)")]
    text = "\n".join([(ROOT / "README.md").read_text(encoding="utf-8"), *kept])
    found = dict.fromkeys(ROOT / match["folder"] for match in BLOCK.finditer(text))
    return [folder for folder in found if (folder / "climb.json").is_file()]


def name_and_pair(climbs: list[dict]) -> None:
    """Give each climb an id of its own, and the ablation of its machine, model, B, T and text: of
    several one of the same commit, else the first."""
    taken = {"compare"}
    for climb in climbs:
        while climb["id"] in taken:
            climb["id"] += "-2"
        taken.add(climb["id"])
    ablations = [climb for climb in climbs if climb["kind"].against == "first"]
    for climb in climbs:
        same = [one for one in ablations if one["settings"] == climb["settings"]]
        best = max(same, key=lambda one: one["commit"] == climb["commit"], default=None)
        climb["ablation"] = best if climb["kind"].against == "above" else None
