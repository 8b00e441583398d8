"""What else this machine is doing while a climb measures."""

import os

from ladder.errors import extra
from ladder.machine import read_or_empty, usable_cores


@extra
def busy() -> str | None:
    """A line if the load of the last minute is above three quarters of the cores that this process
    may use; else None."""
    load = os.getloadavg()[0]
    cores = usable_cores()
    if load > 0.75 * cores:
        return f"load {load:.1f} on {cores:g} core(s) in the last minute: wait if others run"


@extra
def cpu_seconds_of_others() -> float | None:
    """CPU time of all programs since the machine started, but for this one and those that it
    waited for; None where this one has a share of the cores, as others may have theirs."""
    if usable_cores() < os.cpu_count():
        return None
    counts = read_or_empty("/proc/stat").split()[1:9]
    user, nice, system, _idle, _disk, *interrupts = map(int, counts)
    ticks = user + nice + system + sum(interrupts)
    return ticks / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])
