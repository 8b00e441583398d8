"""machine.py: GPUs that are not seen, how many cores there are, and what others take of them."""

import os
from pathlib import Path

import pytest
import torch

from ladder import machine
from ladder.measure import others


def test_a_gpu_that_pytorch_does_not_see_is_told(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(machine, "first_line", lambda *_: "470.82.01")
    assert "driver (470.82.01) is here, but torch" in machine.unseen_gpu()
    monkeypatch.setattr(machine, "first_line", lambda *_: "")  # no driver
    assert machine.unseen_gpu() is None


GROUP = "3:cpu,cpuacct:/\n0::/a.slice/b\n"
ROOT = "/sys/fs/cgroup"
V1 = f"{ROOT}/cpu,cpuacct/cpu.cfs"


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({f"{ROOT}/a.slice/b/cpu.max": "max 100000\n"}, 4),
        ({f"{ROOT}/cpu.max": "150000 100000\n"}, 1.5),  # in a container
        ({f"{V1}_quota_us": "50000\n", f"{V1}_period_us": "100000\n"}, 0.5),
    ],
)
def test_the_cores_of_this_process_are_those_of_its_affinity_and_quota(files, cores, monkeypatch):
    files |= {"/proc/self/cgroup": GROUP}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(4), raising=False)
    monkeypatch.setattr(machine, "read_or_empty", lambda *path: files.get(str(Path(*path)), ""))
    assert machine.usable_cores() == cores
    monkeypatch.setattr(os, "getloadavg", iter([(0.76 * cores,), (0.75 * cores,)]).__next__)
    assert others.busy() and not others.busy()


def test_the_time_of_others_is_all_time_but_idle_and_own(monkeypatch):
    monkeypatch.setattr(others, "usable_cores", os.cpu_count)
    monkeypatch.setattr(others, "read_or_empty", lambda path: "cpu  100 20 30 4000 500 6 7 8 0 0\n")
    monkeypatch.setattr(os, "times", lambda: (0.5, 0.25, 0.125, 0.125, 9.0))
    ticks = 100 + 20 + 30 + 6 + 7 + 8
    assert others.cpu_seconds_of_others() == ticks / os.sysconf("SC_CLK_TCK") - 1.0
