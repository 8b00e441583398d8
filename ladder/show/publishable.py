"""Whether a climb may stand in the repository."""

from pathlib import Path

from ladder.corpus import TINYSHAKESPEARE_SHA256
from ladder.errors import BadInput
from ladder.files import COMMITTED, ROOT
from ladder.measure.climb import Climb
from ladder.measure.losses import MIN_STEPS
from ladder.measure.rows import OUT_OF_TIME, Row, first_log, read_climb
from ladder.show.tables import WHY_NOT_COMPILED, not_compiled

USUAL = f"gpt2 on tinyshakespeare ({TINYSHAKESPEARE_SHA256[:12]})"  # of README.md's tables


def read_publishable(folder: Path) -> tuple[Climb, list[Row]]:
    """The climb and the rows of a climb. Raises BadInput if it may not be published."""
    climb, rows = read_climb(folder)
    if not any(row.logs for row in rows):
        raise BadInput(f"{folder} is no climb to publish: all its runs failed")
    why = why_not(folder, climb, rows)
    if why:
        raise BadInput(f"{folder}: {why}")
    return climb, rows


def why_not(folder: Path, climb: Climb, rows: list[Row]) -> str | None:
    """Why a climb may not be published; None if it may."""
    run = first_log(rows).run
    if not climb.has_ended:
        return f"it was stopped: ladder climb --resume {folder}"
    if climb.quick:
        return "a quick climb is not published: climb without --quick"
    other = other_setting(run)
    if other and int(run["steps"]) < MIN_STEPS:
        return f"below {MIN_STEPS} steps only {USUAL} is published, not {other}"
    if int(run["steps"]) < 3:
        return "fewer than 3 steps are no measurement: two are warm-up"
    if not COMMITTED.fullmatch(climb.commit):
        return f"only committed code is published, not {climb.commit}"
    for name in climb.scripts:
        path = kept(folder, name) or ROOT / name
        if path.is_file() and low_precision(path):
            return f"{path.stem} has low precision, which is in no table with exact ones"
    for row in rows:
        if row.failure == OUT_OF_TIME:
            return f"the time (--max-minutes) was over before {row.stem} could run: climb with more"
        if not_compiled(row):
            return f"nothing was compiled in {row.stem}: {WHY_NOT_COMPILED}"
    return None


def other_setting(run: dict[str, str]) -> str:
    """Model and text of a climb, if README.md does not show their speed; else empty."""
    setting = f"{run['model']} on {run['data']} ({run.get('data_sha256')})"
    return "" if setting == USUAL else setting


def low_precision(path: Path) -> bool:
    """Whether a script declares this class of numerics, which is in no table with exact ones."""
    # Also where Python cannot parse it.
    return "\nNumerics: low precision" in path.read_text("utf-8", "replace")


def kept(folder: Path, name: str) -> Path | None:
    """A script beside the logs of a climb, or in the copy of the code that it made."""
    for path in (folder / Path(name).name, folder / "code" / name):
        if path.is_file():
            return path
    return None
