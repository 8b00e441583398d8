"""What this machine is: device name, peak rate, peak memory."""

import platform
import re
import sys
from pathlib import Path

import torch

from ladder.errors import BadInput

# Dense BF16 tensor-core peaks in FLOP/s, from NVIDIA's data sheets (half of the figures given
# "with sparsity"). A card's name begins with one of these, in whole words.
PEAK_BF16_FLOPS = {
    "NVIDIA A100": 312e12,
    "NVIDIA A10": 125e12,
    "NVIDIA L4": 121e12,
    "NVIDIA L40S": 362e12,
    "NVIDIA GeForce RTX 3090": 71e12,
    "NVIDIA GeForce RTX 4090": 165e12,
    "NVIDIA H100 80GB HBM3": 989e12,
    "NVIDIA H100 PCIe": 756e12,
    "NVIDIA H100 NVL": 835e12,
    "NVIDIA H200": 989e12,
    "NVIDIA H200 NVL": 835e12,
    "NVIDIA GH200": 989e12,
    "NVIDIA B200": 2250e12,
}

# Words after a name in the table that make it another chip, or a part of one.
OTHER_CHIP = {"Ti", "D", "SUPER", "Laptop", "NVL", "MIG"}


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
    """Dense BF16 peak of the device in FLOP/s, or None where the table does not know it."""
    name = re.sub(r"[\s-]+", " ", device_name(device)) + " "
    known = [gpu for gpu in PEAK_BF16_FLOPS if name.startswith(f"{gpu} ")]
    gpu = max(known, key=len, default="")
    # What follows may be memory or form factor ("A100 SXM4 80GB"), but not another chip.
    if not gpu or OTHER_CHIP & set(name.removeprefix(gpu).split()):
        return None
    return PEAK_BF16_FLOPS[gpu]


def peak_bytes(device: torch.device) -> int | None:
    """Most memory held so far: by tensors on CUDA, by the whole process on a CPU, None on MPS."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if device.type == "mps" or sys.platform == "win32":
        return None
    if sys.platform == "linux":
        # Not getrusage: its figure starts at the peak of the process that started this one.
        status = Path("/proc/self/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS


def require_bf16(device: torch.device) -> None:
    """Raise BadInput on a GPU that only emulates bfloat16: it would be slower than FP32."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            if not torch.cuda.is_bf16_supported(including_emulation=False):
                raise BadInput(
                    f"{device_name(device)} has no bfloat16 units: rungs 03 and above need "
                    "an NVIDIA Ampere GPU or newer; run baseline.py, 01 or 02 here"
                )
