"""Whether a climb may stand in the repository."""

from pathlib import Path

from ladder.corpus import TINYSHAKESPEARE_SHA256
from ladder.errors import BadInput
from ladder.files import COMMITTED, ROOT
from ladder.measure.rows import WHY_NOT_COMPILED, Row, first_log, not_compiled, read_climb
from ladder.measure.scripts import low_precision

SHAKESPEARE = f"tinyshakespeare ({TINYSHAKESPEARE_SHA256[:12]})"


def read_publishable(folder: Path) -> tuple[dict, list[Row]]:
    """climb.json and the rows of a climb. Raises BadInput if it may not be published."""
    facts, rows = read_climb(folder)
    if not any(row.logs for row in rows):
        raise BadInput(f"{folder} is no climb to publish: all its runs failed")
    run, commit = first_log(rows).run, facts["commit"]
    data = f"{run['data']} ({run.get('data_sha256')})"
    paths = [kept(folder, name) or ROOT / name for name in facts["scripts"]]
    low = ", ".join(path.stem for path in paths if path.is_file() and low_precision(path))
    eager = ", ".join(row.stem for row in rows if not_compiled(row))
    faults = {
        f"it was stopped: ladder climb --resume {folder}": "after" not in facts["clocks"],
        "a quick climb is not published: climb without --quick": facts.get("quick"),
        f"only gpt2 (124M) is published or shared, not {run['model']}": run["model"] != "gpt2",
        f"only climbs on tinyshakespeare are published, not on {data}": data != SHAKESPEARE,
        "fewer than 3 steps are no measurement: two are warm-up": int(run["steps"]) < 3,
        f"only committed code is published, not {commit}": not COMMITTED.fullmatch(commit),
        f"{low} has low precision, which is in no table with exact ones": low,
        f"nothing was compiled in {eager}: {WHY_NOT_COMPILED}": eager,
    }
    if why := next((why for why, wrong in faults.items() if wrong), None):
        raise BadInput(f"{folder}: {why}")
    return facts, rows


def kept(folder: Path, name: str) -> Path | None:
    """A script beside the logs of a climb, or in the copy of the code that it made."""
    places = folder / Path(name).name, folder / "code" / name
    return next((path for path in places if path.is_file()), None)
