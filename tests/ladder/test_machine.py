"""machine.py: rates of GPUs, and what multiplies half precision."""

import os
import re
from pathlib import Path

import pytest
import torch

from ladder import machine
from ladder.machine import DATA_SHEETS, find_gpu


def test_every_gpu_has_a_source_and_its_rates():
    for gpu in DATA_SHEETS.values():
        assert gpu.source.startswith(("https://", "calculated: "))
        assert not gpu.bandwidth or None not in (gpu.fp32, gpu.tf32, gpu.memory), gpu
        if gpu.dtype == "float16":
            assert gpu.tf32 == gpu.fp32  # no such units
        if gpu.source.startswith("calculated"):
            sm, flop, ghz = map(float, re.findall(r"[\d.]+", gpu.source))
            assert sm * flop * ghz / 1e3 == pytest.approx(gpu.half, abs=0.051), gpu


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100 SXM 80GB"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "RTX 4070 Ti SUPER"),
        ("NVIDIA GeForce RTX 4090 D", None),  # another chip
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),  # a part of one
        ("NVIDIA A10-4Q", None),  # a part of one, for a virtual machine
    ],
)
def test_a_gpu_is_found_by_the_name_that_its_driver_gives(driver, name):
    gpu = find_gpu(driver)
    assert (gpu and gpu.name) == name


def test_a_cpu_without_bfloat16_units_stays_in_fp32(monkeypatch):
    """Ice Lake: oneDNN has kernels for it, which emulate."""
    monkeypatch.setattr(machine.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    assert machine.half_precision(torch.device("cpu")) == torch.float32


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
    monkeypatch.setattr(machine, "_read", lambda *path: files.get(str(Path(*path)), ""))
    assert machine.usable_cores() == cores
    assert bool(machine.busy(0.76 * cores)) and not machine.busy(0.75 * cores)
