"""What this machine is: device name, rates of GPUs, peak memory, half precision.

Functions import torch, the module does not: `ladder limits` starts at once. `device` is a
torch.device.
"""

import os
import platform
import re
import sys
from pathlib import Path
from typing import NamedTuple

from ladder.cli import GPUS
from ladder.errors import BadInput


class GPU(NamedTuple):
    """Dense rates in TFLOP/s, with FP32 accumulation, and memory bandwidth in GB/s.

    Dense is half of a figure "with sparsity". 0: it has no such units; None: not looked up.
    """

    name: str  # for people; several names of a driver may share it
    source: str
    bf16: float
    fp32: float | None = None
    tf32: float | None = None
    bandwidth: float | None = None


CENTER = "https://www.nvidia.com/en-us/data-center/"
AMPERE = (
    "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf"
)
ADA = "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf"
BLACKWELL = "https://images.nvidia.com/aem-dam/Solutions/geforce/blackwell/"
BLACKWELL += "nvidia-rtx-blackwell-gpu-architecture.pdf"
AMD = "https://www.amd.com/en/products/accelerators/instinct/"
# "calculated": no bf16 figure of NVIDIA's was found. Multiprocessors x FLOP a clock x boost clock;
# with 512 FLOP on a GeForce and 1024 on an RTX card this gives those figures that were found:
# 82 x 512 x 1.695 GHz = 71 TFLOP/s for an RTX 3090, 84 x 1024 x 1.8 GHz = 154.8 for an RTX A6000.
# By the beginning, in whole words, of the name that the driver gives.
DATA_SHEETS = {
    "NVIDIA A100": GPU("A100", CENTER + "a100/", 312, 19.5, 156),
    "NVIDIA A100 SXM4 80GB": GPU("A100 SXM 80GB", CENTER + "a100/", 312, 19.5, 156, 2039),
    "NVIDIA A100 80GB PCIe": GPU("A100 PCIe 80GB", CENTER + "a100/", 312, 19.5, 156, 1935),
    "NVIDIA A100 SXM4 40GB": GPU("A100 40GB", CENTER + "a100/", 312, 19.5, 156, 1555),
    "NVIDIA A100 PCIE 40GB": GPU("A100 40GB", CENTER + "a100/", 312, 19.5, 156, 1555),
    "NVIDIA A10": GPU("A10", CENTER + "products/a10-gpu/", 125, 31.2, 62.5, 600),
    "NVIDIA L4": GPU("L4", CENTER + "l4/", 121, 30.3, 60.5, 300),
    "NVIDIA L40S": GPU("L40S", CENTER + "l40s/", 362, 91.6, 183, 864),
    "NVIDIA H100 80GB HBM3": GPU("H100 SXM", CENTER + "h100/", 989, 67, 494.5, 3350),
    "NVIDIA H100 PCIe": GPU("H100 PCIe", CENTER + "h100/", 756, 51, 378, 2000),
    "NVIDIA H100 NVL": GPU("H100 NVL", CENTER + "h100/", 835),
    "NVIDIA H200": GPU("H200 SXM", CENTER + "h200/", 989, 67, 494.5, 4800),
    "NVIDIA H200 NVL": GPU("H200 NVL", CENTER + "h200/", 835),
    "NVIDIA GH200": GPU("GH200", CENTER + "grace-hopper-superchip/", 989),
    "NVIDIA B200": GPU("B200", CENTER + "hgx/", 2250),
    # 36 PFLOP/s with sparsity of the eight in an HGX B300
    "NVIDIA B300": GPU("B300", CENTER + "hgx/", 2250),
    "NVIDIA GeForce RTX 3070": GPU("RTX 3070", "calculated: 46 x 512 x 1.725 GHz", 40.6),
    # The later one with 12 GB has the same name and 3 % more.
    "NVIDIA GeForce RTX 3080": GPU("RTX 3080", "calculated: 68 x 512 x 1.71 GHz", 59.5),
    "NVIDIA GeForce RTX 3090": GPU("RTX 3090", AMPERE, 71, 35.6, 35.6, 936),
    "NVIDIA RTX A6000": GPU("RTX A6000", AMPERE, 154.8),
    # An eighth of its 466 INT8 TOPS with sparsity:
    # https://www.nvidia.com/en-us/geforce/graphics-cards/40-series/rtx-4070-family/
    "NVIDIA GeForce RTX 4070": GPU("RTX 4070", "calculated: 46 x 512 x 2.475 GHz", 58.3),
    "NVIDIA GeForce RTX 4080": GPU("RTX 4080", "calculated: 76 x 512 x 2.505 GHz", 97.5),
    "NVIDIA GeForce RTX 4090": GPU("RTX 4090", ADA, 165, 82.6, 82.6, 1008),
    # A quarter of 1457 TFLOP/s in FP8 with sparsity:
    # https://www.nvidia.com/en-us/design-visualization/rtx-6000/
    "NVIDIA RTX 6000 Ada Generation": GPU(
        "RTX 6000 Ada", "calculated: 142 x 1024 x 2.505 GHz", 364.2
    ),
    "NVIDIA GeForce RTX 5090": GPU("RTX 5090", BLACKWELL, 209.5),
    "Tesla V100 SXM2": GPU("V100 SXM2", CENTER + "v100/", 0, 15.7, 0, 900),
    "Tesla T4": GPU("T4", CENTER + "tesla-t4/", 0, 8.1, 0, 320),
    "AMD Instinct MI300X": GPU("MI300X", AMD + "mi300/mi300x.html", 1307.4),
    # 383 TFLOP/s of the two dies that PyTorch sees as two devices
    "AMD Instinct MI250X": GPU("MI250X", AMD + "mi200/mi250x.html", 191.5),
}
# Words after a name that mean another chip or a part of one (MIG), or leave the chip open (MI250).
OTHER_CHIP = {"Ti", "D", "SUPER", "Laptop", "NVL", "MIG", "MI250"}


def find_gpu(name: str) -> GPU | None:
    """The row of a GPU by the name that its driver gives, such as `NVIDIA A100-SXM4-80GB`."""
    name = re.sub(r"[\s-]+", " ", name) + " "
    known = [gpu for gpu in DATA_SHEETS if name.startswith(f"{gpu} ")]
    gpu = max(known, key=len, default="")
    # What follows may be memory or form factor ("H200 141GB"), but not another chip.
    if not gpu or OTHER_CHIP & set(name.removeprefix(gpu).split()):
        return None
    return DATA_SHEETS[gpu]


def device_name(device) -> str:
    """The device's own name, such as `NVIDIA H100 80GB HBM3` or `AMD EPYC (2 threads)`."""
    import torch

    if device.type in GPUS:
        return torch.get_device_module(device).get_device_name(device)
    name = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    if device.type == "mps":
        return f"{name} GPU"
    threads = torch.get_num_threads()
    return f"{name} ({threads} thread{'s' * (threads > 1)})"


def load() -> float:
    """How many programs wanted to run at a time, on average of the last minute; 0 on Windows."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def busy(load: float, share: float) -> str | None:
    """A line if `load` is more than `share` of the cores."""
    cores = os.cpu_count() or 1
    if load <= share * cores:
        return None
    return f"load {load:.1f} on {cores} core{'s' * (cores > 1)}: these times will mean little"


def peak_flops(device) -> float | None:
    """Dense BF16 peak of the device in FLOP/s, or None if it has none or is not in the table."""
    gpu = find_gpu(device_name(device))
    return gpu.bf16 * 1e12 if gpu and gpu.bf16 else None


def peak_bytes(device) -> int | None:
    """Peak memory so far, in bytes: of tensors on a GPU, of the process on a CPU, None on MPS."""
    import torch

    if device.type in GPUS:
        return torch.get_device_module(device).max_memory_allocated(device)
    if device.type == "mps" or sys.platform == "win32":
        return None
    if sys.platform == "linux":
        # Not getrusage: its figure starts at the parent's peak.
        status = Path("/proc/self/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS


# AMD architectures whose matrix units multiply bfloat16: MI100 to MI350, and from RDNA 3 on.
# https://rocm.docs.amd.com/en/latest/reference/precision-support.html
AMD_WITH_BF16 = ("gfx908", "gfx90a", "gfx94", "gfx95", "gfx11", "gfx12")


def has_bf16(device) -> bool:
    """Whether the device multiplies bfloat16 itself: emulated, it would be slower than FP32.

    By its architecture: PyTorch's is_bf16_supported counts emulation, and says yes to any AMD GPU.
    """
    if device.type not in GPUS:
        return True
    import torch

    gpu = torch.get_device_module(device).get_device_properties(device)
    if device.type == "xpu":
        return gpu.has_bfloat16_conversions
    return gpu.gcnArchName.startswith(AMD_WITH_BF16) if torch.version.hip else gpu.major >= 8


def half_precision(device):
    """What autocast multiplies on this device: torch.bfloat16, or torch.float16 without its units.

    Raises BadInput on an Intel GPU that has neither those nor the FP64 that float16's scaler needs.
    """
    import torch

    if has_bf16(device):
        return torch.bfloat16
    if device.type == "xpu" and not torch.xpu.get_device_properties(device).has_fp64:
        raise BadInput(
            f"{device_name(device)} has no bfloat16 units, and no FP64 units, which PyTorch's "
            "gradient scaler for float16 needs: run baseline.py, 01 or 02 here"
        )
    return torch.float16


def require_bf16(device) -> None:
    """Raise BadInput on a GPU without bfloat16 units."""
    if not has_bf16(device):
        raise BadInput(
            f"{device_name(device)} has no bfloat16 units, and candidates 14 and above are not "
            "written for float16: run candidate 13 here"
        )
