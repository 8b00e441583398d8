"""What this machine is: device name, rates of GPUs, peak memory, half precision, load, clocks.

Functions import torch, the module does not: `ladder roofline` starts at once. `device` is a
torch.device.
"""

import csv
import logging
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import NamedTuple


def quiet_pytorch():
    """Turn off two messages of PyTorch that come in the middle of a run and help nobody."""
    # 30 lines of 2.15 before the error that becomes our one line.
    logging.getLogger("torch._inductor.scheduler").setLevel(logging.CRITICAL + 1)
    # "No CUDA runtime is found", as torch.compile starts where a CUDA toolkit is installed.
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)


class GPU(NamedTuple):
    """Dense rates in TFLOP/s with FP32 accumulation, bandwidth in GB/s, memory in GB.

    Dense is half of a figure "with sparsity". None: not looked up.
    """

    name: str  # for people; several names of a driver may share it
    generation: str  # cards whose matmuls reach like shares of their data sheets
    source: str
    note: str
    dtype: str  # what `half` multiplies: bfloat16, or float16 where that is all it has
    half: float
    fp32: float | None
    tf32: float | None  # FP32's rate where it has no TF32 units: rung 02 changes nothing there
    bandwidth: float | None
    memory: float | None


def read_data_sheets() -> dict[str, GPU]:
    """The rows of gpus.csv by the beginning, in whole words, of the name that the driver gives.

    Where the column `source` begins with "calculated", no half-precision figure of NVIDIA's was
    found. Then `half` is multiprocessors x FLOP a clock x boost clock, with 512 FLOP on a GeForce
    and 1024 on an RTX card. Where NVIDIA gives a figure, it is the same: 82 x 512 x 1.695 GHz = 71
    TFLOP/s for an RTX 3090, 84 x 1024 x 1.8 GHz = 154.8 for an RTX A6000, 68 x 512 x 1.545 GHz =
    53.8 for an RTX 2080 Ti. FP32 is half of it on a GeForce, a quarter on an RTX 20. A laptop has
    the highest clock of its range: with less power it is slower.
    """
    sheets = {}
    with Path(__file__).with_name("gpus.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            driver = row.pop("driver")
            for column in ("half", "fp32", "tf32", "bandwidth", "memory"):
                row[column] = float(row[column]) if row[column] else None
            sheets[driver] = GPU(**row)
    return sheets


DATA_SHEETS = read_data_sheets()
# Words after a name that mean another chip or a part of one (MIG), or leave the chip open (MI250).
OTHER_CHIP = {"Ti", "D", "SUPER", "Super", "Laptop", "Max", "NVL", "MIG", "MI250"}
VGPU = re.compile(r"\d+(A|B|C|Q|CME)")  # the gigabytes of a part, as in "NVIDIA A10-4Q"


def find_gpu(name: str) -> GPU | None:
    """The row of a GPU by the name that its driver gives, such as `NVIDIA A100-SXM4-80GB`."""
    name = re.sub(r"[\s-]+", " ", name) + " "
    known = [driver for driver in DATA_SHEETS if name.startswith(f"{driver} ")]
    if not known:
        return None
    driver = max(known, key=len)
    # What follows may be memory or form factor ("H200 141GB"), but not another chip.
    rest = name.removeprefix(driver).split()
    if OTHER_CHIP.intersection(rest) or any(map(VGPU.fullmatch, rest)):
        return None
    return DATA_SHEETS[driver]


def device_name(device) -> str:
    """The device's own name, such as `NVIDIA H100 80GB HBM3` or `AMD EPYC (2 threads)`."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = _find_in_proc(r"model name\s*: (.*\S)", "cpuinfo")
    name = name or platform.processor() or platform.machine()
    if device.type == "mps":
        return f"{name} GPU"
    threads = torch.get_num_threads()
    if threads == 1:
        return f"{name} (1 thread)"
    return f"{name} ({threads} threads)"


def _find_in_proc(pattern: str, name: str) -> str | None:
    """What the group of a regular expression matches in a file of Linux's /proc."""
    path = Path("/proc", name)
    found = re.search(pattern, path.read_text()) if path.exists() else None
    return found[1] if found else None


def peak_flops(device) -> float | None:
    """The device's dense peak in half precision in FLOP/s, or None if it is not in the table."""
    gpu = find_gpu(device_name(device))
    return gpu.half * 1e12 if gpu else None


def peak_bytes(device) -> int | None:
    """Peak memory so far, in bytes: of tensors on CUDA, of the process on a CPU under Linux."""
    import torch

    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if device.type != "cpu":
        return None
    # getrusage's figure would start at the parent's peak.
    kibibytes = _find_in_proc(r"VmHWM:\s+(\d+) kB", "self/status")
    return int(kibibytes) * 1024 if kibibytes else None


# AMD architectures whose matrix units multiply bfloat16: MI100 to MI350, and from RDNA 3 on.
# https://rocm.docs.amd.com/en/latest/reference/precision-support.html
AMD_WITH_BF16 = ("gfx908", "gfx90a", "gfx94", "gfx95", "gfx11", "gfx12")


def half_precision(device):
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


def _cpu_has_bf16() -> bool:
    """Whether the CPU has bfloat16 units, and oneDNN may use them (ONEDNN_MAX_CPU_ISA)."""
    import torch

    if not torch.backends.mkldnn.is_available():
        return False
    try:
        if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return False
        if platform.machine().lower() not in ("x86_64", "amd64"):
            return True
        # On x86 oneDNN says yes to any AVX-512, and emulates: a matmul at a sixth of FP32's rate.
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    except AttributeError:  # private names, which a release may drop
        return False


def load_average() -> float:
    """How many programs wanted to run at a time, on average of the last minute; 0 if unknown."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):  # Windows, and where /proc is hidden
        return 0.0


def usable_cores() -> float:
    """How many cores this process may use, by its affinity and its container's quota."""
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    quota = _of_cgroup("cpu.max") or _of_cgroup("cpu.cfs_quota_us") + _of_cgroup(
        "cpu.cfs_period_us"
    )
    limit = re.match(r"(\d+)\s(\d+)", quota)  # microseconds; without a limit "max" or -1
    return min(cores, int(limit[1]) / int(limit[2])) if limit else cores


def throttled() -> int | None:
    """How often this process and those beside it had to wait, as their quota was used up."""
    count = re.search(r"nr_throttled (\d+)", _of_cgroup("cpu.stat"))
    return int(count[1]) if count else None


def _of_cgroup(name: str) -> str:
    """What a file of this process's control group holds, of either version; empty without one."""
    try:
        groups = re.findall(r":(|cpu.*):/(.*)", Path("/proc/self/cgroup").read_text())
    except OSError:
        groups = []
    for controllers, path in [*groups, ("", ""), ("cpu", "")]:  # in a container its own is the root
        file = Path("/sys/fs/cgroup", controllers, path, name)
        if os.access(file, os.R_OK):
            return file.read_text()
    return ""


def busy(load_average: float) -> str | None:
    """A line if `load_average` is more than three quarters of the cores."""
    cores = usable_cores()
    if load_average <= 0.75 * cores:
        return None
    load = f"load {load_average:.1f} on {cores:g} core(s)"
    return f"{load} in the last minute: if a program still runs, wait"


def cpu_seconds_of_others() -> float | None:
    """CPU time of all programs since the machine started, but for this one and those that it
    waited for; None where /proc does not count it."""
    try:
        counts = Path("/proc/stat").read_text().split()[1:9]
        user, nice, system, _, _, *interrupts = map(int, counts)
    except (OSError, ValueError):  # missing, forbidden or empty
        return None
    ticks = user + nice + system + sum(interrupts)  # idle and waiting for a disk left out
    return ticks / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])


def first_line(*command: str) -> str:
    """The first line that a program prints; empty if it fails, hangs or is not installed."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            check=True,
            timeout=10,  # nvidia-smi hangs at times
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.partition("\n")[0]


def unseen_gpu() -> str | None:
    """A line if there is an NVIDIA driver, but PyTorch sees no GPU, and none was hidden from it."""
    import torch

    if torch.cuda.is_available() or "CUDA_VISIBLE_DEVICES" in os.environ:
        return None
    driver = first_line("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    if not driver:
        return None
    needs = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
    what = f"NVIDIA's driver ({driver}) is here, but torch {torch.__version__} ({needs})"
    return f"{what} sees no GPU: README.md says which PyTorch goes with which driver"


# For nvidia-smi.
CLOCKS = "clocks.sm,clocks.max.sm,clocks.mem,temperature.gpu,power.limit"


def clocks(device) -> str:
    """What nvidia-smi says of CLOCKS; `unknown` of devices that are not NVIDIA's."""
    import torch

    if device.type != "cuda":
        return "unknown"
    # By its own number: nvidia-smi counts all GPUs, torch those in CUDA_VISIBLE_DEVICES.
    which = f"--id=GPU-{torch.cuda.get_device_properties(device).uuid}"
    answer = first_line("nvidia-smi", which, f"--query-gpu={CLOCKS}", "--format=csv,noheader")
    return f"{CLOCKS}: {answer}" if answer else "unknown"
