"""What this machine is: device name, peak rate, peak memory."""

import platform
import re
import sys
from pathlib import Path

import torch

from ladder.errors import BadInput

# Dense BF16 peaks with FP32 accumulation, in FLOP/s, as the makers publish them: half of a figure
# "with sparsity". A card's name begins with one of these, in whole words.
PEAK_BF16_FLOPS = {
    "NVIDIA A100": 312e12,
    "NVIDIA A10": 125e12,
    "NVIDIA L4": 121e12,
    "NVIDIA L40S": 362e12,
    "NVIDIA H100 80GB HBM3": 989e12,
    "NVIDIA H100 PCIe": 756e12,
    "NVIDIA H100 NVL": 835e12,
    "NVIDIA H200": 989e12,
    "NVIDIA H200 NVL": 835e12,
    "NVIDIA GH200": 989e12,
    "NVIDIA B200": 2250e12,
    # 36 PFLOP/s with sparsity of the eight in an HGX B300: https://www.nvidia.com/en-us/data-center/hgx/
    "NVIDIA B300": 2250e12,
    # https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf
    "NVIDIA GeForce RTX 3070": 40.6e12,
    "NVIDIA GeForce RTX 3080": 59.5e12,  # the later one with 12 GB has the same name and 3 % more
    "NVIDIA GeForce RTX 3090": 71e12,
    "NVIDIA RTX A6000": 154.8e12,
    # https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf
    "NVIDIA GeForce RTX 4080": 97.5e12,
    "NVIDIA GeForce RTX 4090": 165e12,
    # An eighth of its 466 INT8 TOPS with sparsity, as for the two above:
    # https://www.nvidia.com/en-us/geforce/graphics-cards/40-series/rtx-4070-family/
    "NVIDIA GeForce RTX 4070": 58.3e12,
    # A quarter of 1457 TFLOP/s in FP8 with sparsity:
    # https://www.nvidia.com/en-us/design-visualization/rtx-6000/
    "NVIDIA RTX 6000 Ada Generation": 364.2e12,
    # https://images.nvidia.com/aem-dam/Solutions/geforce/blackwell/nvidia-rtx-blackwell-gpu-architecture.pdf
    "NVIDIA GeForce RTX 5090": 209.5e12,
    # https://www.amd.com/en/products/accelerators/instinct/mi300/mi300x.html
    "AMD Instinct MI300X": 1307.4e12,
    # 383 TFLOP/s of the two dies that PyTorch sees as two devices:
    # https://www.amd.com/en/products/accelerators/instinct/mi200/mi250x.html
    "AMD Instinct MI250X": 191.5e12,
}

# Words after a name that mean another chip or a part of one (MIG), or leave the chip open (MI250).
OTHER_CHIP = {"Ti", "D", "SUPER", "Laptop", "NVL", "MIG", "MI250"}


def device_name(device: torch.device) -> str:
    """The device's own name, such as `NVIDIA H100 80GB HBM3` or `AMD EPYC (2 threads)`."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    if device.type == "mps":
        return f"{name} GPU"
    return f"{name} ({torch.get_num_threads()} threads)"


def peak_flops(device: torch.device) -> float | None:
    """Dense BF16 peak of the device in FLOP/s, or None if it is not in the table."""
    name = re.sub(r"[\s-]+", " ", device_name(device)) + " "
    known = [gpu for gpu in PEAK_BF16_FLOPS if name.startswith(f"{gpu} ")]
    gpu = max(known, key=len, default="")
    # What follows may be memory or form factor ("A100 SXM4 80GB"), but not another chip.
    if not gpu or OTHER_CHIP & set(name.removeprefix(gpu).split()):
        return None
    return PEAK_BF16_FLOPS[gpu]


def peak_bytes(device: torch.device) -> int | None:
    """Peak memory so far, in bytes: of tensors on CUDA, of the process on a CPU, None on MPS."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if device.type == "mps" or sys.platform == "win32":
        return None
    if sys.platform == "linux":
        # Not getrusage: its figure starts at the parent's peak.
        status = Path("/proc/self/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS


def has_bf16(device: torch.device) -> bool:
    """False on a GPU that only emulates bfloat16: it would be slower than FP32 there."""
    if device.type != "cuda":
        return True
    with torch.cuda.device(device):
        return torch.cuda.is_bf16_supported(including_emulation=False)


def require_bf16(device: torch.device) -> None:
    """Raise BadInput on a GPU that only emulates bfloat16."""
    if not has_bf16(device):
        raise BadInput(
            f"{device_name(device)} has no bfloat16 units: rungs 03 and above need "
            "an NVIDIA Ampere GPU or newer; run baseline.py, 01 or 02 here"
        )
