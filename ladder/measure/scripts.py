"""The scripts of the ladder: where they are, and which one each goes on from."""

import re
from pathlib import Path

from ladder.errors import BadInput
from ladder.files import ROOT

A_RUNG = "its number, its path or a part of its name"  # in --help: what `select` takes
RUNGS = f"{A_RUNG}, or a range, such as 3-6 (default: all but candidates)"


def all_scripts() -> list[Path]:
    """baseline.py and every numbered rung, in order."""
    return [ROOT / "baseline.py", *sorted((ROOT / "speedups").glob("[0-9][0-9]_*.py"))]


def candidate_scripts() -> list[Path]:
    """The scripts that no GPU has measured yet, in order."""
    return sorted((ROOT / "candidates").glob("[0-9][0-9]_*.py"))


def chain() -> list[Path]:
    """All rungs, then all candidates. `before` says which script each one goes on from."""
    return all_scripts() + candidate_scripts()


def before(path: Path) -> Path | None:
    """The script that `path` adds one change to; None for baseline.py.

    The ladder forks (10 to 11 to 12, and 10 to 13): a script for CPUs only goes on from the one for
    CPUs only before it, any other from the one before it that is not. The first for CPUs only goes
    on from the rung before it.
    """
    scripts = chain()
    earlier = scripts[: scripts.index(path)]
    for script in reversed(earlier):
        if cpu_only(script) == cpu_only(path):
            return script
    return earlier[-1] if earlier else None


def number_of(path: Path) -> int:
    """The number of a rung or candidate: 0 for baseline.py."""
    return int(path.stem[:2]) if path.stem[:2].isdecimal() else 0


def peer_scripts() -> list[Path]:
    """The scripts in peers/ that train with other libraries; the first is the fast one."""
    return sorted((ROOT / "peers").glob("*.py"))


def select(words: list[str]) -> list[Path]:
    """Rungs and candidates by number (`3`), range (`0-4`), path or a part of the name.

    Raises BadInput for a word that no script has, or several.
    """
    selected = []
    for word in words:
        numbers = re.fullmatch(r"(\d+)(?:-(\d+))?", word)
        if numbers:
            first = int(numbers[1])
            last = int(numbers[2] or first)
            selected += numbered(first, last)
        elif Path(word).is_file():
            selected.append(Path(word).resolve())
        else:
            selected.append(named(word, [*chain(), ROOT / "ddp_run.py", ROOT / "fsdp_run.py"]))
    return selected


def numbered(first: int, last: int) -> list[Path]:
    """The scripts with these numbers: of a rung and a candidate with the same one, the rung.

    Raises BadInput if there is none.
    """
    by_number = {}
    for path in [*candidate_scripts(), *all_scripts()]:  # a rung replaces a candidate
        by_number[number_of(path)] = path
    paths = [by_number[number] for number in sorted(by_number) if first <= number <= last]
    if not paths:
        numbers = f"{first}" if first == last else f"{first}-{last}"
        raise BadInput(f"there is no rung {numbers}: they end with {chain()[-1].stem}")
    return paths


def named(word: str, paths: list[Path]) -> Path:
    """The script that is called `word`, or the only one with it in its name. Raises BadInput."""
    part = re.sub(r"[\W_]+", "_", word.lower())
    matches = [path for path in paths if part in path.stem]
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = " or ".join(path.stem for path in matches)
        raise BadInput(f"{word} may be {names}: write more of it")
    raise BadInput(f"{word} is neither a rung (its number or a part of its name) nor a script")


def shown(path: Path) -> str:
    """A script's path as printed: relative to the project if it is inside it."""
    path = path.resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


def cpu_only(path: Path) -> bool:
    """Whether a script's docstring says that its change does nothing on other devices."""
    return has_field(path, "Device: CPU\n")


def has_field(path: Path, start: str) -> bool:
    """Whether a line of a script starts like this, also where Python cannot parse it."""
    return f"\n{start}" in path.read_text(encoding="utf-8", errors="replace")
