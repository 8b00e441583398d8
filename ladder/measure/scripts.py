"""The scripts: where they are, and which one each goes on from.

The ladder forks after rung 10, and the folder is the branch: cpu/ goes on for CPUs, candidates/ for
GPUs.
"""

from pathlib import Path

from ladder.files import ROOT

DDP = ROOT / "ddp_run.py"
FSDP = ROOT / "fsdp_run.py"


def rungs() -> list[Path]:
    """baseline.py and rungs 01 to 10, in order."""
    return [ROOT / "baseline.py", *numbered_in("speedups")]


def branch(folder: str) -> list[Path]:
    """The scripts of a branch, `cpu` or `candidates`, in order."""
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
    return rungs() + branch("cpu") + branch("candidates")


def base_of(path: Path) -> Path | None:
    """The script that `path` adds one change to; None for baseline.py and scripts from outside."""
    if path == DDP:
        return rungs()[-1]
    if path == FSDP:
        return DDP
    for line in (rungs() + branch("cpu"), rungs() + branch("candidates")):
        if path in line[1:]:
            return line[line.index(path) - 1]
    return None


def number_of(path: Path) -> int:
    """The number of a rung or candidate: 0 for baseline.py."""
    return int(path.stem[:2]) if path.stem[:2].isdecimal() else 0


def peer_scripts() -> list[Path]:
    """The scripts in peers/ that train with other libraries; the first is the fast one."""
    return sorted((ROOT / "peers").glob("*.py"))


def relative_name(path: Path) -> str:
    """A script's path relative to the project if it is inside it, else the whole path."""
    path = path.resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)
