"""Compile caches filled side by side before a climb, so that its runs find them warm."""

import re
import time
from pathlib import Path

from ladder.commands.log import read_log
from ladder.commands.process import start
from ladder.errors import BadInput

CGROUP = Path("/sys/fs/cgroup")  # of this container


def precompile(scripts: list[Path], flags: list[str], cache: Path, facts: dict) -> str:
    """Run the first two steps of each script that compiles; returns what was done, in a line.

    The first runs alone: the peak memory in its log says how many fit beside each other. What fails
    here is left to the script's first run, which says why.
    """
    text = dict(encoding="utf-8", errors="replace")  # an own script may say that it is latin-1
    compiled = [path for path in scripts if "torch.compile" in path.read_text(**text)]
    begin, children, at_once = time.monotonic(), [], 1
    try:
        for number, path in enumerate(compiled):
            if number:
                children[max(0, number - at_once)].wait()
            if number == 1:
                at_once = how_many_fit(cache / compiled[0].stem, facts)
            own = str(cache / path.stem)
            words = (path, *flags, "--steps=2", "--log-dir", own)
            children.append(start(*words, TORCHINDUCTOR_CACHE_DIR=own))
        for child in children:
            child.wait()
    finally:
        for child in children:  # after Ctrl-C
            child.kill()
    minutes = (time.monotonic() - begin) / 60
    failed = sum(child.returncode != 0 for child in children)
    news = f"compiled {len(children) - failed} scripts first, {at_once} at once: {minutes:.1f} min"
    return news + f", {failed} failed: round 1 compiles them, or says why" * bool(failed)


def how_many_fit(logs: Path, facts: dict) -> int:
    """Processes that the cores and the free memory allow, if each needs what this log says."""
    try:
        peak = 1.25 * read_log(next(logs.glob("*.log"))).result["peak_bytes"]
    except (BadInput, StopIteration, TypeError):
        return 1
    limits = [facts["cores"] or 1]
    if gpu := facts.get("free_bytes"):  # CUDA itself takes 1 GB there, and 4 GB on the host
        limits.append(gpu // (peak + 1e9))
        peak = 4e9
    limits.append(free_bytes() // peak)
    return max(1, int(min(limits)))


def free_bytes() -> int:
    """Memory that new processes can have on this machine or in this container; 0 if not Linux."""
    info = Path("/proc/meminfo")
    text = info.read_text() if info.exists() else "MemAvailable: 0 kB"
    free = int(re.search(r"MemAvailable:\s+(\d+)", text)[1]) * 1024
    try:  # a container may have less; where it has no limit this says `max`
        most, used = (int((CGROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
    except (OSError, ValueError):
        return free
    return min(free, max(0, most - used))
