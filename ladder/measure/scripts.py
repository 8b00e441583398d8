"""The scripts of the ladder: where they are, and which one each goes on from."""

from pathlib import Path

from ladder.files import ROOT


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

    The ladder forks: 11 goes on from 10 and 12 from 11, which are for CPUs only; 13 goes on from 10
    too. So a script goes on from the nearest one before it of its own branch. The first script for
    CPUs only goes on from the script before it.
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
