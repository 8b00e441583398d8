"""What `ladder report` shows of one climb: its rows, and the scripts, profiles and logs of each."""

import json
import math
import re
import shlex
import tempfile
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

from ladder.commands.ablate import source_at
from ladder.commands.diff import diff_lines
from ladder.commands.kinds import kind_of
from ladder.commands.limits import LABELS
from ladder.commands.results import COMPARABLE, Row, limit_name, limit_tok_per_s, read_climb
from ladder.commands.scripts import all_scripts, chain, docstring
from ladder.commands.tables import caption, cells, columns, doubts, first_beyond, foot
from ladder.errors import BadInput
from ladder.files import ROOT, git, regular

POINTS = 300  # of one loss curve
LONGEST = 100_000  # bytes of a raw log
LARGEST_PROFILE = 1e7  # bytes; a trace beside it has more
TOP = 10  # kernels
BESIDE = ("commit", "python", "steps")  # may differ between a climb and an ablation beside it


def gather(folder: Path) -> dict:
    """All that the page shows of one climb. Raises BadInput if it is none."""
    facts, rows = read_climb(folder)
    good = [row for row in rows if not row.failure]
    if not facts or not good:
        why = "none of its runs has ended well yet" if facts else "it has no climb.json"
        raise BadInput(f"{folder} cannot be shown: {why}")
    run, result = good[0].log.run, good[0].log.result
    kind, rungs = kind_of(facts), find_rungs(folder, facts, rows, run)
    settings = "{device}, {started}, {model}, B={B}, T={T}"
    own = {"B": "its own"} if kind.own_batch else {}
    settings = settings.format(**{**run, **own, "started": facts["started"]})
    label = kind.what
    if facts["kind"] == "climb":
        label = f"{rungs[0]['title']} to {rungs[-1]['title']}"
    done = sum(len(row.logs) for row in rows) + len(facts["failures"])
    wanted = facts["repeats"] * len(facts["scripts"])
    return {
        "id": folder.resolve().name,
        "folder": folder_name(folder),
        "label": f"{settings}: {label}",
        "caption": f"{caption(facts, good)}.",
        "device": run["device"],
        "commit": run["commit"],
        # What it has in common with an ablation that belongs to it.
        "settings": [run.get(key) for key in COMPARABLE if key not in BESIDE],
        "kind": kind,
        "ceiling": limit_tok_per_s(facts, good) or 0,
        "ceiling_name": limit_name(good),
        "rates": "measured here" if facts.get("copy_bytes_per_s") else "of the data sheet",
        "columns": [*columns(facts, rows).values()],
        "table": [[*rung["cells"].values()] for rung in rungs],
        "rungs": rungs,
        "beyond": first_beyond(facts, rows),
        "notes": foot(facts, rows) + doubts(facts),
        "foot": {
            "Not finished": f"{done} of {wanted} runs are in" if done < wanted else "",
            "Failed": "; ".join(f"{name}: {why}" for name, why in facts["failures"].items()),
            "System": f"{run['device']}, {facts['system']}, {facts.get('cores')} cores",
            "Clocks": ", ".join(f"{when}: {rates}" for when, rates in facts["clocks"].items()),
            "Versions": ", ".join(f"{name} {new}" for name, new in facts["versions"].items()),
            "Text": f"{run['data']}, SHA-256 {run.get('data_sha256', 'unknown')}…",
            "Rounds": f"{max(len(row.logs) for row in good)}, interleaved",
            "Steps": f"{result['warmup_steps']} for warm-up, left out; {result['measured_steps']} "
            "measured in each run",
            "Raw logs": folder_name(folder),
            "Again": again(folder, facts, run),
        },
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
            except BadInput:
                doc, path, source = None, None, f"{source}, but Python cannot read it"
            base = rungs[i - 1 if against == "above" else 0] if i and against else None
            both = base and base["path"] and path
            line, state = cells(row), ""
            if row.gain:
                faster = "up" if row.gain.ratio > 1 else "down"
                state = "noise" if row.gain.is_noise else faster
            rung = {
                "row": row,
                "title": line["rung"],
                "cells": {column: line[column] for column in heads},
                "figures": [(head, line[column]) for column, head in heads.items()][1:],
                # The gain without its interval.
                "said": line["gain"].partition(" (")[0] if state in ("up", "down") else "",
                "state": state,
                "base": base,
                "limit": limit(row),
                "path": path,
                "source": source,
                "doc": doc,
                "diff": diff_lines(base["path"], path)[2:] if both else None,
                "profile": profiles.get(row.stem),
            }
            rungs.append(rung | measured(folder, row))
    return rungs


def limit(row: Row) -> dict | None:
    """The limit of a rung in tokens per second, and the milliseconds of its parts."""
    if not row.limit:
        return None
    times = {"limit": sum(row.limit), **dict(zip(LABELS, row.limit, strict=True))}
    return {"tok_per_s": row.tok_per_s * row.ms / times["limit"], "times": times}


def measured(folder: Path, row: Row) -> dict:
    """What the logs of a row hold: raw, what really ran, and points of the first run's losses."""
    if not row.logs:
        return {"logs": [], "ran": "", "curve": []}
    steps = row.log.steps
    ends, last = list(accumulate(step["dt"] for step in steps)), len(steps) - 1
    kept = [*range(0, last, math.ceil(len(ends) / POINTS)), last]
    logs = []
    for repeat in sorted(row.logs):
        path = folder / f"{row.stem}.r{repeat}.log"
        text = f"Longer than {LONGEST:,} bytes, see {folder_name(folder)}/{path.name}"
        short = path.stat().st_size <= LONGEST
        logs.append((path.name, path.read_text(encoding="utf-8") if short else text))
    return {
        "logs": logs,
        "ran": " · ".join(f"{name}: {value}" for name, value in row.log.effective.items()),
        "curve": [(steps[i]["step"], ends[i], steps[i]["loss"]) for i in kept],
    }


def as_measured(folder: Path, facts: dict, stem: str, into: Path) -> tuple[Path | None, str]:
    """A script as it was when measured, and where it comes from, in words; (None, why) without.

    It is beside the logs, or in the commit that climb.json names (that of an ablation is made again
    from the scripts of that commit), or, said so, in this checkout.
    """
    if (path := folder / f"{stem}.py").exists():
        return path, "kept beside its logs"
    name = {Path(name).stem: name for name in facts["scripts"]}.get(stem, stem)
    commit, text, source = facts["commit"], None, "at"
    if stem.startswith("without_"):
        text, source = source_at(commit, stem), "made again from the scripts at"
    else:
        with suppress(BadInput):  # there is no git
            text = git("show", f"{commit}:{name}").stdout
    if text:
        path = into / path.name
        path.write_text(text, encoding="utf-8")
        return path, f"{source} commit {commit}"
    for path in all_scripts():
        if path.stem == stem:
            return path, f"as it is in this checkout now: what ran, commit {commit}, is not here"
    return None, f"the script is not here, nor is commit {commit}, at which it ran"


NO_PROFILE = (ArithmeticError, AttributeError, BadInput, KeyError, OSError)
NO_PROFILE += (RecursionError, TypeError, ValueError)


def find_profiles(run: dict) -> dict[str, dict]:
    """Results of `ladder profile` on the same device, torch, model, B and T, by stem of the script.

    Of several for one script: one of the same commit, else the last by the name of its folder.
    """
    others, own = {}, {}
    paths = [*(ROOT / "logs").glob("*/*.json"), *Path("runs").glob("*/*.json")]
    for path in sorted(paths, key=lambda path: path.parent.name):
        with suppress(*NO_PROFILE):
            facts = json.loads(regular(path, LARGEST_PROFILE).read_text(encoding="utf-8"))
            header = facts["run"]
            one = {
                "from": f"{folder_name(path.parent)}, commit {header['commit']}",
                "times": {name: float(ms) for name, ms in facts["median_ms"].items()},
                "kernels": [
                    (k["name"], f"{k['ms']:.1f}", f"{k['share']:.1%}", k["calls"])
                    for k in facts["kernels"][:TOP]
                ],
            }
            if all(header[key] == run[key] for key in ("device", "torch", "model", "B", "T")):
                same = header["commit"] == run["commit"]
                (own if same else others)[Path(header["script"]).stem] = one
    return others | own


def folder_name(folder: Path) -> str:
    """From the top of the project where it is inside, else its name alone: no one's home."""
    folder = folder.resolve()
    return folder.relative_to(ROOT).as_posix() if folder.is_relative_to(ROOT) else folder.name


def again(folder: Path, facts: dict, run: dict) -> str:
    """The command line that measures it again, in POSIX shell."""
    kind, first = facts["kind"], kind_of(facts).named_from
    words = ["climb", "--fit"] if kind == "fit" else [kind]
    words += ["--memory", str(gib)] if (gib := facts.get("memory_gib")) else []
    # Beside the logs no other script may have such a name: it was a candidate.
    candidates = {path.name: path.stem for path in chain()[1:]}
    for name in [] if first is None else facts["scripts"][first:]:
        number = re.match(r"(?:speedups/|without_)(\d\d)_|baseline\.py$", name)
        own = candidates.get(name) or f"{folder_name(folder)}/{name}"
        words.append(str(int(number[1] or 0)) if number else own)
    words += ["--candidates"] if candidates.keys() & {*facts["scripts"]} else []
    words += ["--repeats", str(facts["repeats"]), *facts["flags"]]
    words += ["--data", run["data"]] if facts.get("data") else []
    commit, changed, _ = facts["commit"].partition("-dirty")
    checkout = f"git checkout {commit} && " if commit != "unknown" else ""
    note = "  # with changes that were not committed" if changed else ""
    return f"{checkout}ladder {shlex.join(words)}{note}"
