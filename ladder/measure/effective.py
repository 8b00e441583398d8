"""What the rungs declare that a step runs, and where the line `effective` of a log differs."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from ladder.cards import find_gpu
from ladder.log import Log, pairs
from ladder.measure.notes import describe
from ladder.measure.scripts import all_scripts, base_of, relative_name


def declared_here(path: Path) -> dict[str, str]:
    """What the note of a script says that `effective` says from it on: by key, values with slashes
    between them."""
    return pairs(re.findall(r"\w+=[^\s`]+", describe(path).get("Effective", "")))


@cache
def declared(path: Path) -> dict[str, list[str]]:
    """The values that a script declares for each key of `effective`, or those of the script that it
    is built on."""
    base = base_of(path)
    values = dict(declared(base)) if base else {}
    for key, value in declared_here(path).items():
        values[key] = value.split("/")
    return values


def differences(logs: Iterable[Log]) -> list[str]:
    """What the runs of one rung did otherwise than it declares, such as `compiled=no, not yes`.

    What the device has no units for is no difference, nor is what PyTorch did not tell.
    """
    scripts = {relative_name(path): path for path in all_scripts()}
    found = {}  # a dict keeps the order
    for log in logs:
        path = scripts.get(log.run.get("script"))  # None: from outside
        for key, expected in declared(path).items() if path else ():
            value = log.effective.get(key, "unknown")
            if value not in (*expected, "unknown") and not is_fallback(log, key, value):
                found[f"{key}={value}, not {'/'.join(expected)}"] = True
    return [*found]


def is_fallback(log: Log, key: str, value: str) -> bool:
    """Whether this is what a rung runs on a device without units for what it declares."""
    if (key, value) == ("autocast", "off"):
        return log.autocast_off
    if (key, value) == ("matmul", "fp32"):
        gpu = find_gpu(log.run["device"])
        has_tf32 = gpu and gpu.dtype == "bfloat16" and log.run["device"].startswith("NVIDIA")
        return not has_tf32
    return False
