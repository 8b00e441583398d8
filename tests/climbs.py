"""Climbs on disk. Here alone the tests know how the folder of a climb looks."""

import re
import shlex
from dataclasses import replace
from importlib.metadata import version

from ladder.checkout import ROOT
from ladder.cli import pick_device
from ladder.log import Log, pairs, pairs_line, step_line
from ladder.machine import device_name
from ladder.measure.folder import Climb, log_texts
from ladder.measure.rows import Row
from ladder.measure.scripts import all_scripts

LOGS = ROOT / "logs"
HERE = "2026-11-21-amd-epyc-2-threads"
PUBLISHED = LOGS / f"{HERE}-climb-3"  # 13 rungs, three rounds
LOG = log_texts(PUBLISHED)["baseline.r1"]
NAMES = {path.stem: path.relative_to(ROOT).as_posix() for path in all_scripts()}
# By the large matmul.
FOUND = {"peak_flops": 1e12}


def a_climb(**facts) -> Climb:
    """A climb of no scripts, with these facts."""
    climb = Climb(
        kind="climb",
        started="2026-11-21 10:00",
        commit="0123456789ab",
        rounds=2,
        scripts=[],
        flags=[],
        device=device_name(pick_device(None)),
        device_type="cpu",
        system="Linux",
        cores=2,
        versions={"torch": version("torch")},
        peak_dtype="bfloat16",
        rates={"peak_flops": [1e15] * 99},
    )
    return replace(climb, **facts)


def write_climb(folder, scripts, **facts):
    """Write the climb.json of these scripts, of which none has run. Returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    a_climb(scripts=[*scripts], folder=folder, **facts).save()
    return folder


def as_it_ran(published, folder):
    """Copy a published climb to what it was before: a file for each log. Returns the folder."""
    folder.mkdir()
    replace(Climb.read_from(published), folder=folder).save()
    for name, text in log_texts(published).items():
        (folder / f"{name}.log").write_text(text)
    return folder


def change(folder, **facts):
    """Change these facts in the climb.json of a climb."""
    replace(Climb.read_from(folder), **facts).save()


def edit(folder, old, new):
    """Change a text in all logs and in climb.json of a climb."""
    for path in [*folder.glob("*.log"), folder / "climb.json"]:
        path.write_text(path.read_text().replace(old, new))


def log_of(ms, losses=(), **run) -> str:
    """The log of a run whose steps took `ms` milliseconds, with these values in its run line.

    It has a step for each of `losses`, if they are given.
    """
    _, line, steps = LOG.split("\n", 2)
    _, *words = shlex.split(line)
    if len(losses):
        run["steps"] = len(losses)
        rest = re.sub(r"step .*\n", "", steps)
        steps = ""
        for step, loss in enumerate(losses):
            steps += step_line(step, len(losses), loss=loss, dt=1, tok_per_s=1) + "\n"
        steps += rest
    steps = re.sub(r"dt +[\d.]+", f"dt {ms}", steps)
    return pairs_line("run", pairs(words) | run) + "\n" + steps


def climb_of(folder, times, rounds=3, device="Test GPU", losses=None, run=None, **facts):
    """Write a climb whose scripts (by stem) took `times` milliseconds a step; None: none ran.

    `losses` has those of a script (rounds, steps), `run` more values for the run line.
    """
    scripts = [NAMES.get(stem, f"{stem}.py") for stem in times]
    facts = {"commit": "unknown"} | facts
    write_climb(folder, scripts, rounds=rounds, device=device, **facts)
    line = {"device": device, "commit": facts["commit"], **(run or {})}
    for stem, ms in times.items():
        for k in range(rounds if ms else 0):
            own = losses[stem][k] if losses else ()
            text = log_of(ms * (1 + k / 1e3), own, **line)
            (folder / f"{stem}.r{k + 1}.log").write_text(text, encoding="utf-8")
    return folder


def as_row(times, stem) -> Row:
    """A row of runs whose steps took these times: (rounds, steps), milliseconds."""
    logs = {}
    for k, one in enumerate(times, 1):
        steps = [{"dt_ms": ms} for ms in one]
        logs[k] = Log(run={"B": "4", "T": "256"}, steps=steps, result={"warmup_steps": 0})
    return Row(stem, logs)
