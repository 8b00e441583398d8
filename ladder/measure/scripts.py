"""The scripts: where they are, and which one each goes on from.

The ladder forks after rung 10, and the folder is the branch: cpu/ goes on for CPUs, candidates/ for
GPUs, beyond/ to the same loss in fewer steps.
"""

import re
from pathlib import Path

from ladder.errors import UsageError
from ladder.files import ROOT

A_RUNG = "its number, its path or a part of its name"  # in --help: what `select` takes
RUNGS = f"{A_RUNG}, or a range, such as 3-6; transformers (default: 0 to 12)"
DDP = ROOT / "ddp_run.py"
FSDP = ROOT / "fsdp_run.py"
BRANCHES = ("cpu", "beyond", "memory")  # folders, in order of number


def rungs() -> list[Path]:
    """baseline.py and rungs 01 to 10, in order."""
    return [ROOT / "baseline.py", *numbered_in("speedups")]


def branch(folder: str) -> list[Path]:
    """The scripts of one of BRANCHES, in order."""
    return numbered_in(folder)


def numbered_in(folder: str) -> list[Path]:
    """The numbered scripts in a folder, in order."""
    return sorted((ROOT / folder).glob("[0-9][0-9]_*.py"))


def rungs_for(device_type: str) -> list[Path]:
    """The measured rungs for a kind of device, each going on from the one before it."""
    if device_type == "cpu":
        return rungs() + branch("cpu")
    return rungs()


def all_scripts() -> list[Path]:
    """All rungs, those of the branches too, in order of number."""
    return sum(map(branch, BRANCHES), rungs())


def base_of(path: Path) -> Path | None:
    """The script that `path` adds one change to; None for baseline.py and scripts from outside."""
    if path == DDP:
        return rungs()[-1]
    if path == FSDP:
        return DDP
    for folder in BRANCHES:
        line = rungs() + branch(folder)
        if path in line[1:]:
            return line[line.index(path) - 1]
    return None


def number_of(path: Path) -> int:
    """The number of a rung or candidate: 0 for baseline.py."""
    return int(path.stem[:2]) if path.stem[:2].isdecimal() else 0


def transformers_scripts() -> list[Path]:
    """The scripts in peers/ that train with other libraries; the first is the fast one."""
    return sorted((ROOT / "peers").glob("*.py"))


def relative_name(path: Path) -> str:
    """A script's path relative to the project if it is inside it, else the whole path."""
    path = path.resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


def select(words: list[str]) -> list[Path]:
    """Rungs and candidates by number (`3`), range (`0-4`), path or a part of the name;
    `transformers` for its scripts.

    Raises UsageError for a word that no script has, or several.
    """
    selected = []
    for word in words:
        numbers = re.fullmatch(r"(\d+)(?:-(\d+))?", word, re.ASCII)
        if numbers:
            selected += numbered(numbers[1], numbers[2] or numbers[1])
        elif Path(word).is_file():
            selected.append(Path(word).resolve())
        elif word == "transformers":
            selected += transformers_scripts()
        else:
            selected.append(named(word, [*all_scripts(), DDP, FSDP, *transformers_scripts()]))
    return selected


def numbered(first: str, last: str) -> list[Path]:
    """The script numbered `last` and those that it goes on from, down to `first`; in order.

    Raises UsageError if there is none, several have a number, or `first` is on another branch.
    """
    start = with_number(int(first))
    line = [with_number(int(last))]
    while line[0] != start:
        base = base_of(line[0])
        if base is None:
            raise UsageError(f"{last} does not go on from {first}: name each rung")
        line.insert(0, base)
    return line


def with_number(number: int) -> Path:
    """The script with this number. Raises UsageError if there is none, or several have it."""
    found = [path for path in all_scripts() if number_of(path) == number]
    if not found:
        top = number_of(all_scripts()[-1])
        raise UsageError(f"no rung has a number {number}: they end with {top}")
    if len(found) > 1:  # in two branches
        names = " or ".join(path.stem for path in found)
        raise UsageError(f"{number} is {names}: write its name")
    return found[0]


def named(word: str, paths: list[Path]) -> Path:
    """The script that is called `word`, or the only one with it in its name. Raises UsageError."""
    part = re.sub(r"[\W_]+", "_", word.lower())
    matches = [path for path in paths if part in path.stem]
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = " or ".join(path.stem for path in matches)
        raise UsageError(f"{word} may be {names}: write more of it")
    raise UsageError(f"{word} is neither a rung (its number or a part of its name) nor a script")


def one_script(word: str) -> Path:
    """The one script that `word` names. Raises UsageError if it is a range or not a script."""
    path, *others = select([word])
    if others:
        raise UsageError(f"{word} is several rungs: name one at a time")
    return path
