"""All that `ladder report` shows of one climb, from its logs, its scripts and profiles of them."""

import ast
import json
import math
import re
import shlex
import tempfile
from itertools import accumulate
from pathlib import Path

from ladder import files
from ladder.commands.diff import diff_lines
from ladder.commands.kinds import kind_of
from ladder.commands.results import COMPARABLE, Row, limit_tok_per_s, read_climb
from ladder.commands.scripts import ROOT, all_scripts, beyond_ten, describe
from ladder.commands.tables import caption, cells, headings, titles
from ladder.errors import BadInput
from ladder.log import Log, read_log

POINTS = 500  # of one loss curve
TOP = 10  # kernels
BESIDE = ("commit", "python", "steps")  # may differ between a climb and the ablation beside it
NOT_RUN = "not run yet"  # how read_climb calls a script that has neither logs nor failures


def gather(folder: Path) -> dict:
    """All that the page shows of one climb, ready for JSON. Raises BadInput if it is none."""
    try:
        facts, rows = read_climb(folder)
        good = [row for row in rows if row.logs]
        if not good:
            raise BadInput(f"{folder}: none of its runs has ended well yet")
        head, run = caption(facts, good), first_log(good[0]).run
        limit = limit_tok_per_s(facts, good)
        names = rung_names(rows)
        lines = [cells(row, names) for row in rows]
    except (AttributeError, KeyError, TypeError) as error:  # a climb.json or a log made by others
        raise BadInput(f"{folder} is no climb of this ladder: {error!r}") from error
    profiles = find_profiles(folder, run)
    with tempfile.TemporaryDirectory() as scratch:
        scripts = [as_measured(folder, facts, row, run["commit"], Path(scratch)) for row in rows]
        shown = [
            show_row(folder, facts, rows, i, scripts, lines[i], profiles) for i in range(len(rows))
        ]
    fastest = max(row.tok_per_s for row in good)
    return {
        "folder": folder_name(folder),
        "kind": facts.get("kind", "climb"),
        "label": label(facts, run, rows, names),
        "beside": None,
        "settings": [run.get(key) for key in COMPARABLE if key not in BESIDE],
        "commit": run["commit"],
        "caption": head,
        "progress": progress(facts, rows),
        "columns": headings(facts),
        "limit": limit and {"tok": limit, "times": limit / fastest},
        "rows": shown,
        "foot": foot(folder, facts, good),
    }


def first_log(row: Row) -> Log:
    return row.logs[min(row.logs)]


def folder_name(folder: Path) -> str:
    """From the top of the project where it is inside, else its name alone: no one's home."""
    folder = folder.resolve()
    return folder.relative_to(ROOT).as_posix() if folder.is_relative_to(ROOT) else folder.name


def rung_names(rows: list[Row]) -> dict[str, str]:
    """The titles of rows by stem; of a script that is no rung of this checkout, its file name."""
    known = titles() if (ROOT / "baseline.py").exists() else {}
    return {row.stem: known.get(row.stem, row.stem.replace("_", " ")) for row in rows}


def label(facts: dict, run: dict, rows: list[Row], names: dict) -> str:
    """What the selector says: enough to tell climbs apart."""
    whole = f"{names[rows[0].stem]} to {names[rows[-1].stem]}"
    what = kind_of(facts).label or whole
    started = facts.get("started", "undated")
    return f"{run['device']}, {started}, {run['model']}, B={run['B']}, T={run['T']}: {what}"


def progress(facts: dict, rows: list[Row]) -> str | None:
    """`12 of 33 runs are in` for a climb still under way, or stopped; None for a whole one."""
    wanted = facts.get("repeats", 0) * len(facts.get("scripts", []))
    done = sum(len(row.logs) for row in rows) + len(facts.get("failures", {}))
    return f"{done} of {wanted} runs are in" if done < wanted else None


def show_row(folder, facts, rows, i, scripts, line, profiles) -> dict:
    """One rung: its numbers as drawn and as text, what it changes, its losses and its logs."""
    row, (path, source) = rows[i], scripts[i]
    base = {"above": i - 1, "first": 0}.get(kind_of(facts).against) if i else None
    failures = facts.get("failures", {})
    return {
        "stem": row.stem,
        "title": line[0],
        "beyond": kind_of(facts).against == "above" and beyond_ten(row.stem),
        "failure": row.failure,
        "cells": [line[0], NOT_RUN, *line[2:]] if row.failure == NOT_RUN else line,
        "against": None if base is None else rows[base].stem,
        "gain": row.gain and {**vars(row.gain), "noise": row.gain.is_noise},
        "gain_text": line[4],
        "doc": docstring(path),
        "source": source,
        "diff": None if base is None else diff(scripts[base][0], path),
        "base_source": None if base is None else scripts[base][1],
        "failed_runs": {
            name: why for name, why in failures.items() if name.rpartition(".")[0] == row.stem
        },
        "profile": profiles.get(row.stem),
        "logs": [
            {"name": name, "text": (folder / name).read_text(encoding="utf-8")}
            for name in (f"{row.stem}.r{k}.log" for k in sorted(row.logs))
        ],
        **(measured(row) if row.logs else {}),
    }


def measured(row: Row) -> dict:
    """What a bar, a curve and the line of what really ran are drawn from."""
    rate, log = row.tok_per_s, first_log(row)
    spread = (1, *row.spread)
    stride = math.ceil(len(log.steps) / POINTS)
    ends = list(accumulate(step["dt"] for step in log.steps))
    kept = [i for i in range(len(ends)) if i % stride == 0 or i == len(ends) - 1]
    return {
        "tok": [rate * part for part in spread],
        "mfu": row.mfu and [row.mfu * part for part in spread],
        "memory": row.peak_bytes and [row.peak_bytes / 1e9],
        "effective": log.effective,
        "stride": stride,
        "loss": [[log.steps[i]["step"], round(ends[i], 4), log.steps[i]["loss"]] for i in kept],
    }


def as_measured(folder: Path, facts: dict, row: Row, commit: str, into: Path):
    """A script as it was when measured, and where it comes from, in words; (None, why) without.

    It is beside the logs, or in the commit that they name, or, said so, in this checkout.
    """
    named = {Path(name).stem: name for name in facts.get("scripts", [])}
    name = named.get(row.stem) or (first_log(row).run["script"] if row.logs else row.stem)
    if (beside := folder / f"{row.stem}.py").exists():
        return beside, "kept beside its logs"
    if re.fullmatch("[0-9a-f]{7,40}", commit):
        found = git("show", f"{commit}:{name}")
        if found is not None:
            path = into / f"{row.stem}.py"
            path.write_text(found, encoding="utf-8")
            return path, f"at commit {commit}"
    for path in all_scripts():
        if path.stem == row.stem and path.exists():
            return path, f"as it is in this checkout now: what ran, commit {commit}, is not here"
    return None, f"the script is not here, nor is commit {commit}, at which it ran"


def git(*words: str) -> str | None:
    """What git prints in this checkout; None where there is no git, or no such thing in it."""
    try:
        done = files.git(*words)
    except BadInput:
        return None
    return None if done.returncode else done.stdout


def docstring(path: Path | None) -> list[list[str]]:
    """The fields of a script's docstring with their names; all of it under "" if it has none."""
    if path is None:
        return []
    try:
        return [[name, text] for name, text in describe(path).items() if name != "Title"]
    except SyntaxError:
        return []
    except ValueError:
        return [["", ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""]]


def diff(before: Path | None, after: Path | None) -> list[str] | None:
    """The lines of a unified diff, without the names of the files; None if one cannot be read."""
    try:
        return diff_lines(before, after)[2:] if before and after else None
    except BadInput:
        return None


def find_profiles(own: Path, run: dict) -> dict[str, dict]:
    """Results of `ladder profile` on the same device, torch, model, B and T, by stem of the script.

    Of several for one script: the climb's own, else one of the same commit, else the last by name.
    """
    found, ranks = {}, {}
    folders = [own, *(ROOT / "logs").glob("*"), *Path("runs").glob("*")]
    for path in (path for folder in folders for path in sorted(folder.glob("*.json"))):
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            script, medians, kernels = (facts[k] for k in ("script", "median_ms", "kernels"))
            # The log beside it has its name, with a date behind it where `profile` left it.
            (log,) = (p for p in path.parent.glob(f"{path.stem}*.log") if names_log(p, path.stem))
            header = read_log(log).run
            stages = {k: medians[k] for k in ("forward", "backward", "optimizer")}
            shown = {"step": medians["step"], "stages": stages, "kernels": kernels[:TOP]}
            same = all(header[k] == run[k] for k in ("device", "torch", "model", "B", "T"))
        except (BadInput, KeyError, OSError, TypeError, ValueError):
            continue  # not a profile
        if not same:
            continue
        rank = (path.parent == own, header["commit"] == run["commit"], path.parent.name)
        shown |= {"folder": folder_name(path.parent), "commit": header["commit"]}
        stem = Path(script).stem
        if stem not in found or rank > ranks[stem]:
            found[stem], ranks[stem] = shown, rank
    return found


def names_log(path: Path, stem: str) -> bool:
    return re.fullmatch(re.escape(stem) + r"(-\d{8}-\d{6}-\d+)?\.log", path.name) is not None


def foot(folder: Path, facts: dict, good: list[Row]) -> list[list[str]]:
    """Where and how it was measured, and the command that does it again, as names and texts."""
    log = first_log(good[0])
    run, result, clocks = log.run, log.result, facts.get("clocks", {})
    versions = facts.get("versions") or {k: run[k] for k in ("python", "torch") if k in run}
    lines = {
        "Machine": run["device"],
        "System": facts.get("system"),
        "Cores": facts.get("cores"),
        "Clocks": ", ".join(f"{when}: {rates}" for when, rates in clocks.items()),
        "Versions": ", ".join(f"{name} {number}" for name, number in versions.items()),
        "Commit": run["commit"],
        "Text": f"{run['data']}, SHA-256 {run.get('data_sha256', 'unknown')}…",
        "Rounds": f"{facts['repeats']}, interleaved" if "repeats" in facts else None,
        "Steps": f"{result['warmup_steps']} for warm-up, left out; {result['measured_steps']} "
        "measured in each run",
        "Raw logs": folder_name(folder),
        "Again": command(folder, facts, run),
    }
    return [[name, str(text)] for name, text in lines.items() if text]


def command(folder: Path, facts: dict, run: dict) -> str | None:
    """The command line that measures it again, in POSIX shell; None without a climb.json."""
    if "scripts" not in facts:
        return None
    words, kind = [], facts.get("kind", "climb")
    first = kind_of(facts).named_from
    for name in [] if first is None else facts["scripts"][first:]:
        number = re.match(r"(?:speedups/|without_)(\d\d)_|baseline\.py$", name)
        words.append(str(int(number[1] or 0)) if number else f"{folder_name(folder)}/{name}")
    if kind == "climb" and len(words) > 1 and all(word.isdigit() for word in words):
        first, last = int(words[0]), int(words[-1])
        if words == [str(number) for number in range(first, last + 1)]:
            words = [f"{first}-{last}"]
    words += ["--repeats", str(facts.get("repeats", 1)), *facts.get("flags", [])]
    words += ["--data", run["data"]] if facts.get("data") else []
    commit = run["commit"].removesuffix("-dirty")
    checkout = "" if commit == "unknown" else f"git checkout {commit} && "
    changed = "  # with changes that were not committed" if run["commit"] != commit else ""
    return f"{checkout}ladder {kind} {shlex.join(words)}{changed}"
