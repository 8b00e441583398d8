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

POINTS = 500  # of one loss curve, as report.html says
TOP = 10  # kernels
BESIDE = ("commit", "python", "steps")  # may differ between a climb and the ablation beside it


def gather(folder: Path) -> dict:
    """All that the page shows of one climb, ready for JSON. Raises BadInput if it is none."""
    try:
        facts, rows = read_climb(folder)
        if all(row.failure for row in rows):
            raise BadInput(f"{folder}: none of its runs has ended well yet")
        return shown(folder, facts, rows)
    except (AttributeError, KeyError, TypeError) as error:  # made by others, or without climb.json
        raise BadInput(f"{folder} is no climb of this ladder: {error!r}") from error


def shown(folder: Path, facts: dict, rows: list[Row]) -> dict:
    """A climb of which at least one run ended well."""
    kind = kind_of(facts)
    good = [row for row in rows if row.logs]
    log = good[0].logs[min(good[0].logs)]
    run, limit = log.run, limit_tok_per_s(facts, good)
    lines = show_rows(folder, facts, rows, run)
    what = kind.label or f"{lines[0]['title']} to {lines[-1]['title']}"
    settings = "{device}, {started}, {model}, B={B}, T={T}".format(**run, started=facts["started"])
    done = sum(len(row.logs) for row in rows) + len(facts["failures"])
    wanted = facts["repeats"] * len(facts["scripts"])
    fastest, result = max(row.tok_per_s for row in good), log.result
    return {
        "folder": folder_name(folder),
        "label": f"{settings}: {what}",
        "compared": kind.compared,
        "against": kind.against,
        "beside": None,
        "settings": [run.get(key) for key in COMPARABLE if key not in BESIDE],
        "commit": run["commit"],
        "caption": f"{caption(facts, good)}.",
        "progress": f"Not finished: {done} of {wanted} runs are in." if done < wanted else None,
        "columns": headings(facts),
        "limit": limit and {"tok": limit, "mfu": 1, "times": limit / fastest},
        "rows": lines,
        "foot": {
            "Machine": run["device"],
            "System": facts["system"],
            "Cores": facts["cores"],
            "Clocks": ", ".join(f"{when}: {rates}" for when, rates in facts["clocks"].items()),
            "Versions": ", ".join(f"{name} {new}" for name, new in facts["versions"].items()),
            "Commit": run["commit"],
            "Text": f"{run['data']}, SHA-256 {run.get('data_sha256', 'unknown')}…",
            "Rounds": f"{facts['repeats']}, interleaved",
            "Steps": f"{result['warmup_steps']} for warm-up, left out; {result['measured_steps']} "
            "measured in each run",
            "Failed": "; ".join(f"{name}: {why}" for name, why in facts["failures"].items()),
            "Raw logs": folder_name(folder),
            "Again": command(folder, facts, run),
        },
    }


def folder_name(folder: Path) -> str:
    """From the top of the project where it is inside, else its name alone: no one's home."""
    folder = folder.resolve()
    return folder.relative_to(ROOT).as_posix() if folder.is_relative_to(ROOT) else folder.name


def command(folder: Path, facts: dict, run: dict) -> str:
    """The command line that measures it again, in POSIX shell."""
    words, first = [], kind_of(facts).named_from
    for name in [] if first is None else facts["scripts"][first:]:
        number = re.match(r"(?:speedups/|without_)(\d\d)_|baseline\.py$", name)
        words.append(str(int(number[1] or 0)) if number else f"{folder_name(folder)}/{name}")
    words += ["--repeats", str(facts["repeats"]), *facts["flags"]]
    words += ["--data", run["data"]] if facts["data"] else []
    commit = run["commit"].removesuffix("-dirty")
    checkout = "" if commit == "unknown" else f"git checkout {commit} && "
    changed = "  # with changes that were not committed" if run["commit"] != commit else ""
    return f"{checkout}ladder {facts['kind']} {shlex.join(words)}{changed}"


def show_rows(folder: Path, facts: dict, rows: list[Row], run: dict) -> list[dict]:
    """Each row: its numbers as drawn and as text, what it changes, its losses and its logs."""
    against, profiles, names = kind_of(facts).against, find_profiles(run), titles()
    lines = []
    with tempfile.TemporaryDirectory() as scratch:
        scripts = [as_measured(folder, facts, row, run["commit"], Path(scratch)) for row in rows]
        for i, (row, (path, source)) in enumerate(zip(rows, scripts, strict=True)):
            base = {"above": i - 1, "first": 0}.get(against) if i else None
            texts = cells(row, names)
            if row.failure == "not run yet":
                texts[1] = row.failure  # not "failed: "
            logs = [f"{row.stem}.r{repeat}.log" for repeat in sorted(row.logs)]
            line = {
                "stem": row.stem,
                "title": texts[0],
                "cells": texts,
                "beyond": against == "above" and beyond_ten(row.stem),
                "against": None if base is None else rows[base].stem,
                "gain": row.gain and {**vars(row.gain), "noise": row.gain.is_noise},
                "doc": docstring(path),
                "source": source,
                "diff": None if base is None else diff(scripts[base][0], path),
                "profile": profiles.get(row.stem),
                "logs": [[name, (folder / name).read_text(encoding="utf-8")] for name in logs],
            }
            lines.append(line | (measured(row) if logs else {}))
    return lines


def measured(row: Row) -> dict:
    """What a bar, a curve and the line of what really ran are drawn from."""
    log, spread = row.logs[min(row.logs)], (1, *row.spread)
    stride = math.ceil(len(log.steps) / POINTS)
    ends = list(accumulate(step["dt"] for step in log.steps))
    kept = [i for i in range(len(ends)) if i % stride == 0 or i == len(ends) - 1]
    return {
        "tok": [row.tok_per_s * part for part in spread],
        "mfu": row.mfu and [row.mfu * part for part in spread],
        "memory": row.peak_bytes and [row.peak_bytes / 1e9],
        "effective": log.effective,
        "loss": [[log.steps[i]["step"], round(ends[i], 4), log.steps[i]["loss"]] for i in kept],
    }


def as_measured(folder: Path, facts: dict, row: Row, commit: str, into: Path):
    """A script as it was when measured, and where it comes from, in words; (None, why) without.

    It is beside the logs, or in the commit that they name (that of an ablation is made again from
    the scripts of that commit), or, said so, in this checkout.
    """
    path = folder / f"{row.stem}.py"
    if path.exists():
        return path, "kept beside its logs"
    name = {Path(name).stem: name for name in facts["scripts"]}.get(row.stem, row.stem)
    text, known = None, re.fullmatch("[0-9a-f]{7,40}", commit)  # others may write anything
    try:
        if known and row.stem.startswith("without_"):
            from ladder.commands.ablate import source_at

            text, source = source_at(commit, row.stem), "made again from the scripts at"
        elif known:
            text, source = git("show", f"{commit}:{name}").stdout, "at"
    except BadInput:
        pass  # there is no git
    if text:
        path = into / path.name
        path.write_text(text, encoding="utf-8")
        return path, f"{source} commit {commit}"
    for path in all_scripts():
        if path.stem == row.stem:
            return path, f"as it is in this checkout now: what ran, commit {commit}, is not here"
    return None, f"the script is not here, nor is commit {commit}, at which it ran"


def docstring(path: Path | None) -> list[list[str]]:
    """The fields of a script's docstring with their names; all of it as one if it has none."""
    try:
        return list(describe(path).items())[1:] if path else []
    except SyntaxError:
        return []
    except ValueError:
        return [["Docstring", ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""]]


def diff(before: Path | None, after: Path | None) -> list[str] | None:
    """The lines of a unified diff, without the names of the files; None if one cannot be read."""
    try:
        return diff_lines(before, after)[2:] if before and after else None
    except BadInput:
        return None


def find_profiles(run: dict) -> dict[str, dict]:
    """Results of `ladder profile` on the same device, torch, model, B and T, by stem of the script.

    Of several for one script: one of the same commit, else the last by the name of its folder.
    """
    others, own = {}, {}
    paths = [*(ROOT / "logs").glob("*/*.json"), *Path("runs").glob("*/*.json")]
    for path in sorted(paths, key=lambda path: path.parent.name):
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            header, stem = facts["run"], Path(facts["run"]["script"]).stem
            one = {
                "folder": folder_name(path.parent),
                "commit": header["commit"],
                "median_ms": facts["median_ms"],
                "kernels": facts["kernels"][:TOP],
            }
            if all(header[key] == run[key] for key in ("device", "torch", "model", "B", "T")):
                (own if header["commit"] == run["commit"] else others)[stem] = one
        except (KeyError, OSError, TypeError, ValueError):
            pass  # not a profile
    return others | own
