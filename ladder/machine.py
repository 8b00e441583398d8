"""What this machine is and is doing: device name, half precision, memory, cores, launchers.

Functions import torch, the module does not: `ladder roofline` starts at once.
"""

import os
import platform
import re
import subprocess
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING

from ladder.cards import find_gpu
from ladder.disk import read_or_empty

if TYPE_CHECKING:
    import torch


def extra(measure: Callable) -> Callable:
    """Make `measure` return None if anything goes wrong: a note or a load never ends the work."""

    @wraps(measure)
    def measure_or_none(*arguments: object) -> object:
        try:
            return measure(*arguments)
        except Exception:
            return None

    return measure_or_none


def device_name(device: "torch.device") -> str:
    """The device's own name, such as `NVIDIA H100 80GB HBM3` or `AMD EPYC (2 threads)`."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    found = re.search(r"model name\s*: (.*\S)", read_or_empty("/proc/cpuinfo"))
    name = found[1] if found else platform.machine()
    if device.type == "mps":
        return f"{name} GPU"
    threads = torch.get_num_threads()
    return f"{name} (1 thread)" if threads == 1 else f"{name} ({threads} threads)"


# How many processes they started: torchrun, srun, Open MPI, MPICH, Flux, HPE's PALS.
LAUNCHERS = (
    "WORLD_SIZE",
    "SLURM_STEP_NUM_TASKS",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "FLUX_JOB_SIZE",
    "PALS_LOCAL_SIZE",
)


def started_with_others() -> str | None:
    """What says that a launcher started more than this process, as `PMI_SIZE is 2`."""
    for name in LAUNCHERS:
        processes = os.environ.get(name, "1")
        if processes != "1":
            return f"{name} is {processes}"
    return None


def peak_flops(device: "torch.device") -> float | None:
    """The device's dense peak in half precision in FLOP/s, or None if it is not in the table."""
    gpu = find_gpu(device_name(device))
    return gpu.half * 1e12 if gpu else None


def memory_of(device: "torch.device") -> float:
    """A GPU's memory in bytes."""
    import torch

    return torch.cuda.get_device_properties(device).total_memory


def peak_bytes(device: "torch.device") -> int | None:
    """Peak memory so far, in bytes: of tensors on CUDA, of the process on a CPU under Linux."""
    import torch

    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # getrusage's figure would start at the parent's peak.
    kibibytes = re.search(r"VmHWM:\s+(\d+) kB", read_or_empty("/proc/self/status"))
    return int(kibibytes[1]) * 1024 if kibibytes else None


# AMD architectures whose matrix units multiply bfloat16: MI100 to MI350, and from RDNA 3 on.
# https://rocm.docs.amd.com/en/latest/reference/precision-support.html
AMD_WITH_BF16 = ("gfx908", "gfx90a", "gfx94", "gfx95", "gfx11", "gfx12")


def half_precision(device: "torch.device") -> "torch.dtype":
    """The dtype for autocast: torch.bfloat16 where the device multiplies it, else float16 on a GPU.

    Emulated bfloat16 would be slower than FP32. torch.float32, with which autocast stays off, on a
    CPU without bfloat16 units.
    """
    import torch

    if device.type == "cuda":
        # Not PyTorch's is_bf16_supported, which counts emulation and says yes to any AMD GPU.
        gpu = torch.cuda.get_device_properties(device)
        if torch.version.hip:
            has_bf16 = gpu.gcnArchName.startswith(AMD_WITH_BF16)
        else:
            has_bf16 = gpu.major >= 8
        return torch.bfloat16 if has_bf16 else torch.float16
    if device.type == "mps" or _cpu_has_bf16():
        return torch.bfloat16
    return torch.float32


@extra
def _cpu_has_bf16() -> bool:
    """Whether the CPU has bfloat16 units, and oneDNN may use them (ONEDNN_MAX_CPU_ISA)."""
    import torch

    # Private names, which a PyTorch without oneDNN lacks and a release may drop.
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return True
    # On x86 oneDNN says yes to any AVX-512, and emulates: a matmul at a sixth of FP32's rate.
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


@extra
def usable_cores() -> float:
    """How many cores this process may use, by its affinity and its container's quota."""
    cores = os.cpu_count()
    if hasattr(os, "sched_getaffinity"):  # Linux
        cores = len(os.sched_getaffinity(0))
    version_1 = zip(_of_cgroups("cpu.cfs_quota_us"), _of_cgroups("cpu.cfs_period_us"), strict=True)
    for text in [*_of_cgroups("cpu.max"), *map("".join, version_1)]:
        limit = re.match(r"(\d+)\s(\d+)", text)  # microseconds; without a limit "max" or -1
        if limit:
            cores = min(cores, int(limit[1]) / int(limit[2]))
    return cores


def throttled() -> int:
    """How often this process and those beside it had to wait, as their quota was used up."""
    counts = re.findall(r"nr_throttled (\d+)", "".join(_of_cgroups("cpu.stat")))
    return sum(map(int, counts))


def _of_cgroups(name: str) -> list[str]:
    """What a file of this process's control groups, and of those around them, holds."""
    texts = []
    for controllers, path in re.findall(r":(|cpu.*):/(.*)", read_or_empty("/proc/self/cgroup")):
        group = Path("/sys/fs/cgroup", controllers, path)
        texts += [read_or_empty(folder, name) for folder in (group, *group.parents)]
    return texts


@extra
def first_line(*command: str) -> str:
    """The first line that a program prints."""
    options = dict(text=True, errors="replace", timeout=10)  # nvidia-smi hangs at times
    done = subprocess.run(command, capture_output=True, check=True, **options)
    return done.stdout.partition("\n")[0]


@extra
def unseen_gpu() -> str | None:
    """A line if there is an NVIDIA driver, but PyTorch sees no GPU, and none was hidden from it."""
    import torch

    if torch.cuda.is_available() or "CUDA_VISIBLE_DEVICES" in os.environ:
        return None
    driver = first_line("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    if not driver:
        return None
    return (
        f"NVIDIA's driver ({driver}) is here, but torch {torch.__version__} (for CUDA "
        f"{torch.version.cuda}) sees no GPU: see Versions in docs/your-card.md"
    )
