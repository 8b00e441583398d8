"""What a training step really ran, read from a profile of it and not from its settings.

PyTorch has no public names for the dtypes of a profiled operator. A release that drops the private
ones costs the line `effective`, not the run.
"""

import os
import re

import torch
from torch.profiler import ProfilerActivity, profile

from ladder.machine import extra

# As the profiler names them. Operators inside a compiled graph appear too: the matmuls and the
# attention kernels stay calls into ATen there, while all the rest becomes generated code.
_MATMUL = re.compile(r"aten::(mm|addmm|bmm|baddbmm)$|mkldnn::_linear_pointwise")
_ATTENTION = re.compile(
    r"aten::_scaled_dot_product_(flash|efficient|cudnn|fused|attention_math)\w*(?<!backward)$"
)
# The last one found counts: on a CPU a foreach optimizer calls the operators of a for-loop too.
_OPTIMIZERS = {
    "aten::addcdiv_": "for-loop",
    "aten::_foreach_addcdiv_": "foreach",
    "aten::_fused_adamw_": "fused",
}
# All that is read here. Without this list ProfilerActivity.CPU records CUDA's runtime too. For that
# Kineto starts CUPTI and leaves it on: launches are slower ever after (pytorch issue 144455).
_RECORDED = {ProfilerActivity.CPU: ["CPU_OP", "USER_ANNOTATION"]}
_DTYPES = {"c10::BFloat16": "bfloat16", "c10::Half": "float16", "float": "float32"}


os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # else torch 2.13 prints two lines, "USDT: …"


class Watcher:
    """What a run calls around each step on rank 0. It has one watcher: Run(…, watcher=…)."""

    def begin(self, done: int, left: int):
        """A step begins, after `done` others in this run; `left` are to do. The script reads its
        clock next."""

    def last_batch(self):
        """Its last batch is about to be read; of most scripts a step has one."""

    def end(self, dt: float | None, skipped: bool = False) -> profile | None:
        """It has ended after `dt` seconds; None if it was no step, or an error ended it.

        Returns a profile that is to be read as what the script runs. A step that is `skipped`, as
        float16 overflowed, has no optimizer.
        """


class SecondStep(Watcher):
    """Records the second step, a warm-up step, and if that is skipped, a later one.

    Of a step of several batches it records the last, and the optimizer: each takes up to 215 MB.
    """

    def __init__(self):
        self.recording = None  # of the step under way
        self.is_due = False
        self.has_one = False

    def begin(self, done: int, left: int):
        self.is_due = done > 0 and not self.has_one

    def last_batch(self):
        if self.is_due:
            try:
                self.recording = profile(activities=[_RECORDED], record_shapes=True)
            except Exception:  # an older PyTorch, or a newer one, that takes no names
                self.recording = profile(activities=[ProfilerActivity.CPU], record_shapes=True)
            self.recording.start()

    def end(self, dt: float | None, skipped: bool = False) -> profile | None:
        recording = self.recording
        self.recording = None
        self.is_due = False
        if recording:
            recording.stop()
            self.has_one = dt is not None and not skipped
        return recording if self.has_one else None


def matmul_units(device: torch.device) -> str:
    """`tf32` or `fp32`: how float32 matrices are multiplied, found by multiplying two.

    A library or NVIDIA_TF32_OVERRIDE may overrule PyTorch's setting. 1 + 2^-12 times the identity
    is 1 + 2^-12 in float32, and 1 if it is first rounded to TF32's 10 bits.
    """
    a = torch.full((512, 512), 1 + 2**-12, device=device)
    return "fp32" if torch.equal(a @ torch.eye(512, device=device), a) else "tf32"


@extra
def operators(recording: profile) -> set | None:
    """Name and dtypes of the first inputs of each event on the CPU side.

    None if this PyTorch does not tell them.
    """
    events = recording.profiler.kineto_results.events()
    return {(event.name(), *event.dtypes()[:3]) for event in events}


def effective(ran: set | None) -> dict[str, str]:
    """What one training step ran, from its `operators`.

    Returns autocast (dtypes of the matmuls' operands, `off` if all float32), compiled, attention
    (`math` means scores, softmax and values as separate operators) and optimizer. Each is `unknown`
    if there are none.
    """
    if not ran:
        return dict.fromkeys(("autocast", "compiled", "attention", "optimizer"), "unknown")
    names = set()
    dtypes = set()
    kernels = set()
    for name, *inputs in ran:
        names.add(name)
        if _MATMUL.match(name) and len(inputs) > 1:
            # The second input of mm(a, b) and of addmm(bias, a, b) is a matrix that is multiplied.
            dtypes.add(_DTYPES.get(inputs[1], inputs[1]))
        kernel = _ATTENTION.match(name)
        if kernel:
            kernels.add(kernel[1])
    autocast = "+".join(sorted(dtypes)) or "unknown"
    compiled = "no"
    if any("Torch-Compiled Region" in name for name in names):
        # A compiled layer norm is generated code: one that is an operator was not compiled.
        compiled = "partly" if "aten::native_layer_norm" in names else "yes"
    optimizer = "unknown"  # a skipped step ran none
    for name, loop in _OPTIMIZERS.items():
        if name in names:
            optimizer = loop
    return {
        "autocast": "off" if autocast == "float32" else autocast,
        "compiled": compiled,
        "attention": "+".join(sorted(kernels)) or "math",
        "optimizer": optimizer,
    }
