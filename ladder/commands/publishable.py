"""Whether a climb may stand in the repository: asked before it runs and before it is published."""

from pathlib import Path

from ladder.commands.results import Row, first_log, read_climb
from ladder.commands.scripts import low_precision
from ladder.commands.tables import WHY_NOT_COMPILED, not_compiled
from ladder.corpus import TINYSHAKESPEARE_SHA256
from ladder.errors import BadInput
from ladder.files import COMMITTED, ROOT


def why_not(
    *, quick: bool, model: str, data: str, steps: int, commit: str, scripts: list[Path]
) -> str | None:
    """Why a climb with these settings may not be published, in one line; None if it may."""
    if quick:
        return "a quick climb is not published: climb without --quick"
    if model != "gpt2":
        return f"only gpt2 (124M) is published, not {model}"
    if data != "tinyshakespeare":
        return f"only climbs on tinyshakespeare are published, not on {data}"
    if steps < 3:
        return f"{steps} steps are no measurement: the first two of a run are warm-up"
    if not COMMITTED.fullmatch(commit):
        return f"only committed code is published, not {commit}: commit, climb again"
    if low := [path.stem for path in scripts if low_precision(path)]:
        return f"{low[0]} has low precision, which is in no table with exact ones"
    return None


def read_publishable(folder: Path) -> tuple[dict, list[Row]]:
    """climb.json and the rows of a climb. Raises BadInput if it may not be published."""
    facts, rows = read_climb(folder)
    if not facts:
        raise BadInput(f"{folder} has no climb.json: name the folder of a climb")
    if not any(row.logs for row in rows):
        raise BadInput(f"{folder}: all its runs failed")
    if "after" not in facts["clocks"]:
        raise BadInput(f"{folder} was stopped: finish it, ladder climb --resume {folder}")
    run = first_log(rows).run
    ours = run.get("data_sha256") == TINYSHAKESPEARE_SHA256[:12]
    why = why_not(
        quick=facts.get("quick", False),
        model=run["model"],
        data=run["data"] if ours else f"{run['data']} ({run.get('data_sha256')})",
        steps=int(run["steps"]),
        commit=facts["commit"],
        scripts=[path for name in facts["scripts"] if (path := source(folder, name))],
    )
    if eager := [row.stem for row in rows if not_compiled(row)]:
        why = why or f"nothing was compiled in {eager[0]}: {WHY_NOT_COMPILED}"
    if why:
        raise BadInput(f"{folder}: {why}")
    return facts, rows


def source(folder: Path, name: str) -> Path | None:
    """A script of a climb: as it ran, kept beside its logs, or of this checkout; None without."""
    places = (folder / "code", folder, ROOT)
    return next((path for place in places if (path := place / name).is_file()), None)
