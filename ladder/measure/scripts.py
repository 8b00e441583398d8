"""The scripts: where they are, and which one each is built on.

The ladder forks after rung 10, and the folder is the branch: cpu/ for CPUs, memory/ for GPUs with
little memory, beyond/ for the same loss in fewer steps.
"""

import re
from functools import cache
from itertools import pairwise
from pathlib import Path

from ladder.checkout import ROOT
from ladder.errors import UsageError
from ladder.text import did_you_mean

A_RUNG = "its number, its path or a part of its name"  # in --help: what `select` takes
RUNGS = f"{A_RUNG}, or a range, such as 3-6; or transformers (default: all for this device)"
TRAIN = ROOT / "train.py"
FSDP = ROOT / "fsdp_run.py"
# Each is built on the one before, the first on rung 10.
ON_SEVERAL_GPUS = [ROOT / "ddp_run.py", TRAIN, FSDP]
BRANCHES = ("cpu", "beyond", "memory")  # folders, in order of number


def rungs() -> list[Path]:
    """baseline.py and rungs 01 to 10, in order."""
    return [ROOT / "baseline.py", *branch("speedups")]


def branch(folder: str) -> list[Path]:
    """The numbered scripts in a folder, one of BRANCHES or speedups, in order."""
    return sorted((ROOT / folder).glob("[0-9][0-9]_*.py"))


def rungs_for(device_type: str) -> list[Path]:
    """The rungs that are climbed on a kind of device, each built on the one before it."""
    if device_type == "cpu":
        return rungs() + branch("cpu")
    return rungs()


def all_scripts() -> list[Path]:
    """All rungs, those of the branches too, in order of number."""
    found = rungs()
    for folder in BRANCHES:
        found += branch(folder)
    return found


@cache
def bases() -> dict[Path, Path]:
    """Who is built on whom: by script the one that it adds one change to."""
    found = {}
    for later in (*map(branch, BRANCHES), ON_SEVERAL_GPUS):
        line = rungs() + later
        for base, path in pairwise(line):
            found[path] = base
    return found


def base_of(path: Path) -> Path | None:
    """The script that `path` adds one change to; None for baseline.py and scripts from outside."""
    return bases().get(path)


def number_of(path: Path) -> int:
    """The number of a rung: 0 for baseline.py."""
    return int(path.stem[:2]) if path.stem[:2].isdecimal() else 0


def transformers_scripts() -> list[Path]:
    """The scripts in peers/ that train with other libraries; the first is the fast one."""
    return sorted((ROOT / "peers").glob("*.py"))


def ours() -> list[Path]:
    """All scripts of the project."""
    return [*all_scripts(), *ON_SEVERAL_GPUS, *transformers_scripts()]


def flags_to_measure(name: str) -> list[str]:
    """What a script of this name is given so that it leaves its log alone: no checkpoints."""
    return ["--ckpt-every=0"] if name in (TRAIN.name, FSDP.name) else []


def relative_name(path: Path) -> str:
    """A script's path relative to the project if it is inside it, else the whole path."""
    path = path.resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


def select(words: list[str]) -> list[Path]:
    """Rungs by number (`3`), range (`0-4`), path or a part of the name;
    `transformers` for its scripts.

    Raises UsageError for a word that no script has, or several.
    """
    selected = []
    for word in words:
        numbers = re.fullmatch(r"(\d+)(?:-(\d+))?", word, re.ASCII)
        if numbers:
            selected += numbered(int(numbers[1]), int(numbers[2] or numbers[1]))
        elif Path(word).is_file():
            if not word.endswith(".py"):
                raise UsageError(f"{word} is not a Python script")
            selected.append(Path(word).resolve())
        elif word == "transformers":
            selected += transformers_scripts()
        else:
            selected.append(named(word))
    return selected


def numbered(first: int, last: int) -> list[Path]:
    """The scripts from `first` to `last` that are built on each other, in order.

    Raises UsageError if there is none, or `first` is on another branch.
    """
    by_number = {number_of(path): path for path in all_scripts()}
    if last not in by_number:
        there = ", ".join(map(str, by_number))
        raise UsageError(f"there is no rung {last}: there are {there}")
    line = [by_number[last]]
    while number_of(line[0]) != first:
        base = base_of(line[0])
        if base is None:
            raise UsageError(f"no rung {last} is built on {first}: name each rung")
        line.insert(0, base)
    return line


def named(word: str) -> Path:
    """The only script with `word` in its name. Raises UsageError if there is none, or several."""
    part = re.sub(r"[\W_]+", "_", word.lower())
    matches = [path for path in ours() if part in path.stem]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UsageError(f"{word} is {' or '.join(path.stem for path in matches)}")
    names = []
    for path in ours():
        name = re.sub(r"^\d\d_", "", path.stem)
        names += [name, *name.split("_")]
    raise UsageError(
        f"{word} is neither a rung (its number or a part of its name) nor a script"
        f"{did_you_mean(part, names)}"
    )


def one_script(word: str) -> Path:
    """The one script that `word` names. Raises UsageError if it is a range or not a script."""
    path, *others = select([word])
    if others:
        raise UsageError(f"{word} is several rungs: name one at a time")
    return path
