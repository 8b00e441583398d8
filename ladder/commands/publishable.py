"""Whether a climb may stand in the repository: asked before it runs and before it is published."""

from pathlib import Path

from ladder.commands.results import Row, first_log, read_climb
from ladder.commands.scripts import low_precision
from ladder.commands.tables import WHY_NOT_COMPILED, not_compiled
from ladder.corpus import TINYSHAKESPEARE_SHA256
from ladder.errors import BadInput
from ladder.files import COMMITTED, ROOT


def why_not(
    quick: bool, model: str, data: str, steps: int, commit: str, scripts: list[Path]
) -> str:
    """Why a climb with these settings may not be published, in one line; empty if it may."""
    low = "".join(path.stem for path in scripts if low_precision(path))
    faults = {
        "a quick climb is not published: climb without --quick": quick,
        f"only gpt2 (124M) is published, not {model}": model != "gpt2",
        f"only climbs on tinyshakespeare are published, not on {data}": data != "tinyshakespeare",
        f"{steps} steps are no measurement: the first two of a run are warm-up": steps < 3,
        f"only committed code is published, not {commit}": not COMMITTED.fullmatch(commit),
        f"{low} has low precision, which is in no table with exact ones": low,
    }
    return next((why for why, wrong in faults.items() if wrong), "")


def read_publishable(folder: Path) -> tuple[dict, list[Row]]:
    """climb.json and the rows of a climb. Raises BadInput if it may not be published."""
    facts, rows = read_climb(folder)
    if not facts or not any(row.logs for row in rows):
        why = "all its runs failed" if facts else "it has no climb.json"
        raise BadInput(f"{folder} is no climb to publish: {why}")
    run = first_log(rows).run
    name, sha256 = run["data"], run.get("data_sha256")
    why = why_not(
        quick=facts.get("quick", False),
        model=run["model"],
        data=name if sha256 == TINYSHAKESPEARE_SHA256[:12] else f"{name} ({sha256})",
        steps=int(run["steps"]),
        commit=facts["commit"],
        scripts=[path for name in facts["scripts"] if (path := source(folder, name))],
    )
    if "after" not in facts["clocks"]:
        why = f"it was stopped: finish it, ladder climb --resume {folder}"
    if eager := [row.stem for row in rows if not_compiled(row)]:
        why = why or f"nothing was compiled in {eager[0]}: {WHY_NOT_COMPILED}"
    if why:
        raise BadInput(f"{folder}: {why}")
    return facts, rows


def source(folder: Path, name: str) -> Path | None:
    """A script of a climb: as it ran, kept beside its logs, or of this checkout; None without."""
    places = (folder / "code", folder, ROOT)
    return next((path for place in places if (path := place / name).is_file()), None)
