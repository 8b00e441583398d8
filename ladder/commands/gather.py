"""All that `ladder report` shows of one climb, from its logs, its scripts and profiles of them."""

import ast
import json
import math
import re
import shlex
import tempfile
from itertools import accumulate
from pathlib import Path

from ladder.commands.diff import diff_lines
from ladder.commands.kinds import kind_of
from ladder.commands.results import COMPARABLE, Row, limit_tok_per_s, read_climb
from ladder.commands.scripts import all_scripts, beyond_ten, describe
from ladder.commands.tables import caption, cells, headings, titles
from ladder.errors import BadInput
from ladder.files import ROOT, git
from ladder.log import Log

POINTS = 500  # of one loss curve
TOP = 10  # kernels
BESIDE = ("commit", "python", "steps")  # may differ between a climb and the ablation beside it
WITHOUT = "without_"  # how the script of an ablation is named: this, and the rung left out


def gather(folder: Path) -> dict:
    """All that the page shows of one climb, ready for JSON. Raises BadInput if it is none."""
    try:
        facts, rows = read_climb(folder)
        good = [row for row in rows if row.logs]
        if not good:
            raise BadInput(f"{folder}: none of its runs has ended well yet")
        head, run = caption(facts, good), first_log(good[0]).run
        limit = limit_tok_per_s(facts, good)
        known = titles() if all_scripts()[0].exists() else {}
        names = {row.stem: known.get(row.stem, row.stem.replace("_", " ")) for row in rows}
        lines = [cells(row, names) for row in rows]
    except (AttributeError, KeyError, TypeError) as error:  # a climb.json or a log made by others
        raise BadInput(f"{folder} is no climb of this ladder: {error!r}") from error
    kind = kind_of(facts)
    what = kind.label or f"{lines[0][0]} to {lines[-1][0]}"
    wanted = facts.get("repeats", 0) * len(facts.get("scripts", []))
    done = sum(len(row.logs) for row in rows) + len(facts.get("failures", {}))
    fastest = max(row.tok_per_s for row in good)
    return {
        "folder": folder_name(folder),
        "label": f"{run['device']}, {facts.get('started', 'undated')}, {run['model']}, "
        f"B={run['B']}, T={run['T']}: {what}",
        "compared": kind.compared,
        "against": kind.against,
        "beside": None,
        "settings": [run.get(key) for key in COMPARABLE if key not in BESIDE],
        "commit": run["commit"],
        "caption": head,
        "progress": f"{done} of {wanted} runs are in" if done < wanted else None,
        "columns": headings(facts),
        "limit": limit and {"tok": limit, "mfu": 1, "times": limit / fastest},
        "rows": show_rows(folder, facts, rows, lines, run),
        "foot": foot(folder, facts, first_log(good[0])),
    }


def first_log(row: Row) -> Log:
    return row.logs[min(row.logs)]


def folder_name(folder: Path) -> str:
    """From the top of the project where it is inside, else its name alone: no one's home."""
    folder = folder.resolve()
    return folder.relative_to(ROOT).as_posix() if folder.is_relative_to(ROOT) else folder.name


def show_rows(folder: Path, facts: dict, rows: list[Row], lines: list[list], run: dict) -> list:
    """Each row: its numbers as drawn and as text, what it changes, its losses and its logs."""
    against = kind_of(facts).against
    profiles = find_profiles(folder, run)
    shown = []
    with tempfile.TemporaryDirectory() as scratch:
        scripts = [as_measured(folder, facts, row, run["commit"], Path(scratch)) for row in rows]
        for i, (row, line, (path, source)) in enumerate(zip(rows, lines, scripts, strict=True)):
            failed = {
                name: why
                for name, why in facts.get("failures", {}).items()
                if name.rpartition(".")[0] == row.stem
            }
            if row.failure and not failed:  # it has not run yet
                line = [line[0], row.failure, *line[2:]]
            base = {"above": i - 1, "first": 0}.get(against) if i else None
            found = {
                "stem": row.stem,
                "title": line[0],
                "beyond": against == "above" and beyond_ten(row.stem),
                "left_out": row.stem[len(WITHOUT) :] if row.stem.startswith(WITHOUT) else None,
                "failure": row.failure,
                "cells": line,
                "against": None if base is None else rows[base].stem,
                "gain": row.gain and {**vars(row.gain), "noise": row.gain.is_noise},
                "gain_text": line[4],
                "doc": docstring(path),
                "source": source,
                "diff": None if base is None else diff(scripts[base][0], path),
                "base_source": None if base is None else scripts[base][1],
                "failed_runs": failed,
                "profile": profiles.get(row.stem),
                "logs": [
                    {"name": name, "text": (folder / name).read_text(encoding="utf-8")}
                    for name in (f"{row.stem}.r{k}.log" for k in sorted(row.logs))
                ],
            }
            shown.append(found | (measured(row) if row.logs else {}))
    return shown


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

    It is beside the logs, or in the commit that they name (that of an ablation is made again from
    the scripts of that commit), or, said so, in this checkout.
    """
    if (beside := folder / f"{row.stem}.py").exists():
        return beside, "kept beside its logs"
    named = {Path(name).stem: name for name in facts.get("scripts", [])}
    name = named.get(row.stem) or (first_log(row).run["script"] if row.logs else row.stem)
    known = re.fullmatch("[0-9a-f]{7,40}", commit)  # a log of others may say anything: no options
    text, source = None, f"made again from the scripts at commit {commit}"
    if known and row.stem.startswith(WITHOUT):
        from ladder.commands.ablate import source_at

        text = source_at(commit, row.stem)
    if known and text is None:
        text, source = from_git(f"{commit}:{name}"), f"at commit {commit}"
    if text is not None:
        path = into / f"{row.stem}.py"
        path.write_text(text, encoding="utf-8")
        return path, source
    for path in all_scripts():
        if path.stem == row.stem and path.exists():
            return path, f"as it is in this checkout now: what ran, commit {commit}, is not here"
    return None, f"the script is not here, nor is commit {commit}, at which it ran"


def from_git(name: str) -> str | None:
    """The text of COMMIT:PATH; None where there is no git, or no such thing in it."""
    try:
        done = git("show", name)
    except BadInput:
        return None
    return None if done.returncode else done.stdout


def docstring(path: Path | None) -> list[list[str]]:
    """The fields of a script's docstring with their names; all of it under "" if it has none."""
    try:
        return list(describe(path).items())[1:] if path else []
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
    found = []
    folders = [own, *(ROOT / "logs").glob("*"), *Path("runs").glob("*")]
    for path in (path for folder in folders for path in folder.glob("*.json")):
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            header, medians = facts["run"], facts["median_ms"]
            same = all(header[key] == run[key] for key in ("device", "torch", "model", "B", "T"))
            shown = {
                "step": medians["step"],
                "stages": {name: medians[name] for name in ("forward", "backward", "optimizer")},
                "kernels": facts["kernels"][:TOP],
                "folder": folder_name(path.parent),
                "commit": header["commit"],
            }
        except (KeyError, OSError, TypeError, ValueError):
            continue  # not a profile
        if same:
            rank = (path.parent == own, header["commit"] == run["commit"], path.parent.name)
            found.append((rank, Path(header["script"]).stem, shown))
    return {stem: shown for _, stem, shown in sorted(found, key=lambda one: one[0])}


def foot(folder: Path, facts: dict, log: Log) -> list[list[str]]:
    """Where and how it was measured, and the command that does it again, as names and texts."""
    run, result = log.run, log.result
    versions = facts.get("versions") or {k: run[k] for k in ("python", "torch") if k in run}
    lines = {
        "Machine": run["device"],
        "System": facts.get("system"),
        "Cores": facts.get("cores"),
        "Clocks": ", ".join(f"{when}: {rates}" for when, rates in facts.get("clocks", {}).items()),
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
    words, first = [], kind_of(facts).named_from
    for name in [] if first is None else facts["scripts"][first:]:
        number = re.match(r"(?:speedups/|without_)(\d\d)_|baseline\.py$", name)
        words.append(str(int(number[1] or 0)) if number else f"{folder_name(folder)}/{name}")
    words += ["--repeats", str(facts.get("repeats", 1)), *facts.get("flags", [])]
    words += ["--data", run["data"]] if facts.get("data") else []
    commit = run["commit"].removesuffix("-dirty")
    checkout = "" if commit == "unknown" else f"git checkout {commit} && "
    changed = "  # with changes that were not committed" if run["commit"] != commit else ""
    return f"{checkout}ladder {facts.get('kind', 'climb')} {shlex.join(words)}{changed}"
