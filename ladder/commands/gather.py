"""What `ladder report` shows of one climb: its rows, and the scripts, profiles and logs of each."""

import json
import re
import shlex
import tempfile
from contextlib import suppress
from pathlib import Path

from ladder.commands.diff import diff_lines
from ladder.commands.kinds import kind_of
from ladder.commands.results import COMPARABLE, Row, limit_name, limit_tok_per_s, read_climb
from ladder.commands.scripts import candidate_scripts, docstring
from ladder.commands.tables import caption, cells, columns, doubts, first_beyond, foot
from ladder.commands.work import LABELS
from ladder.errors import BadInput
from ladder.files import ROOT, git

TOP = 10  # kernels
BESIDE = ("commit", "python", "steps")  # may differ between a climb and an ablation beside it


def gather(folder: Path) -> dict:
    """All that the page shows of one climb. Raises BadInput if it is none."""
    facts, rows = read_climb(folder)
    good = [row for row in rows if not row.failure]
    if not facts or not good:
        why = "none of its runs has ended well yet" if facts else "it has no climb.json"
        raise BadInput(f"{folder} cannot be shown: {why}")
    run = good[0].log.run
    rungs = find_rungs(folder, facts, rows, run)
    label = "{device}, {started}, {model}, B={B}, T={T}: ".format(**run, started=facts["started"])
    between = f"{rungs[0]['title']} to {rungs[-1]['title']}"
    return {
        "id": folder.resolve().name,
        "folder": short_name(folder),
        "label": label + (between if facts["kind"] == "climb" else kind_of(facts).what),
        "caption": f"{caption(facts, good)}.",
        "facts": facts,
        "run": run,
        "result": good[0].log.result,
        # What it has in common with an ablation that belongs to it.
        "settings": [run.get(key) for key in COMPARABLE if key not in BESIDE],
        "kind": kind_of(facts),
        "ceiling": limit_tok_per_s(facts, good) or 0,
        "ceiling_name": limit_name(good),
        "rungs": rungs,
        "beyond": first_beyond(facts, rows),
        "notes": foot(facts, rows) + doubts(facts),
        "again": again(folder, facts, run),
    }


def find_rungs(folder: Path, facts: dict, rows: list[Row], run: dict) -> list[dict]:
    """Each row with the docstring and diff of its script as measured, its profile and its logs."""
    against, heads = kind_of(facts).against, columns(facts, rows)
    profiles, rungs = find_profiles(run), []
    with tempfile.TemporaryDirectory() as scratch:
        for i, row in enumerate(rows):
            path, source = as_measured(folder, facts, row.stem, Path(scratch))
            try:
                doc = path and docstring(path)
            except BadInput:  # then the row says how it failed
                doc, path, source = None, None, f"{source}, but Python cannot read it"
            base = rungs[i - 1 if against == "above" else 0] if i and against else None
            both = base and base["path"] and path
            line, state, roofline = cells(row), "", row.roofline
            if row.gain and row.gain.significant:
                state = "up" if row.gain.ratio > 1 else "down"
            if roofline:  # milliseconds
                parts = dict(zip(LABELS, roofline, strict=True))
                roofline = {"roofline": sum(roofline), **parts}
            names = [f"{row.stem}.r{repeat}.log" for repeat in sorted(row.logs)]
            rung = {
                "row": row,
                "title": line["rung"],
                "gain": line["gain"],
                "figures": {head: line[column] for column, head in heads.items()},
                "state": state,
                "base": base,
                "roofline": roofline,
                "path": path,
                "source": source,
                "doc": doc,
                "diff": diff_lines(base["path"], path)[2:] if both else None,
                "profile": profiles.get(row.stem),
                "logs": {name: (folder / name).read_text(encoding="utf-8") for name in names},
            }
            rungs.append(rung)
    return rungs


def as_measured(folder: Path, facts: dict, stem: str, into: Path) -> tuple[Path | None, str]:
    """A script as it was when measured, and where it comes from, in words; (None, why) without."""
    name = {Path(name).stem: name for name in facts["scripts"]}.get(stem, f"{stem}.py")
    if path := kept(folder, name):
        return path, "kept with its logs"
    commit, path = facts["commit"], into / f"{stem}.py"
    if text := git("show", f"{commit}:./{name}").stdout:
        path.write_text(text, encoding="utf-8")
        return path, f"at commit {commit}"
    if (path := ROOT / name).is_file():
        return path, f"as it is in this checkout now: what ran, commit {commit}, is not here"
    return None, f"the script is not here, nor is commit {commit}, at which it ran"


def kept(folder: Path, name: str) -> Path | None:
    """A script beside its logs, or in the copy of the code that a climb makes."""
    places = folder / Path(name).name, folder / "code" / name
    return next((path for path in places if path.is_file()), None)


def find_profiles(run: dict) -> dict[str, dict]:
    """Results of `ladder profile` on the same device, torch, model, B and T, by stem of the script:
    of several the last by the name of its folder."""
    found = {}
    paths = [*(ROOT / "logs").glob("*/*.json"), *Path("runs").glob("*/*.json")]
    for path in sorted(paths, key=lambda path: path.parent.name):
        # Other commands leave JSON too, without these keys; a trace (STEM.trace.json) is large.
        with suppress(KeyError, OSError, TypeError, ValueError):
            facts = {} if "." in path.stem else json.loads(path.read_text(encoding="utf-8"))
            header = facts["run"]
            if all(header[key] == run[key] for key in ("device", "torch", "model", "B", "T")):
                found[Path(header["script"]).stem] = {
                    "from": f"{short_name(path.parent)}, commit {header['commit']}",
                    "times": facts["median_ms"],
                    "kernels": facts["kernels"][:TOP],
                }
    return found


def short_name(path: Path) -> str:
    """From the top of the project where it is inside, else its name alone: no one's home."""
    path = path.resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name


def again(folder: Path, facts: dict, run: dict) -> str:
    """The command line that measures it again, in POSIX shell."""
    words, first = [facts["kind"]], kind_of(facts).named_from
    candidates = {path.stem for path in candidate_scripts()}
    for name in [] if first is None else facts["scripts"][first:]:
        number = re.match(r"(?:speedups/|without_)(\d\d)_|baseline\.py$", name)
        own = short_name(kept(folder, name) or Path(name))
        stem = Path(name).stem
        words.append(str(int(number[1] or 0)) if number else stem if stem in candidates else own)
    words += ["--candidates"] if candidates & {*words} else []
    words += ["--repeats", str(facts["repeats"]), *facts["flags"]]
    words += ["--data", run["data"]] if facts.get("data") else []
    commit, changed, _ = facts["commit"].partition("-dirty")
    checkout = f"git checkout {commit} && " if commit != "unknown" else ""
    note = "  # with changes that were not committed" if changed else ""
    return f"{checkout}ladder {shlex.join(words)}{note}"
