"""Say what this machine is, which rungs can run on it and which can make it
faster.

The command tries what each rung needs: it rounds and times a matmul, and
compares a compiled training step with an eager one, and the fused attention
with textbook attention. It trains nothing and takes a minute or two. The exit
status is 1 if a rung cannot run, or PyTorch does not see a GPU whose driver is
here.

  ladder doctor                    for the best device there is
  ladder doctor --device cpu       for another one
"""

import math
import os
import platform
import runpy
import tempfile
from collections.abc import Callable
from functools import partial

import torch
from rich.text import Text
from torch.nn import functional as F

from ladder import probe
from ladder.cli import MODELS, add_flags, parse_args, pick_device
from ladder.errors import UsageError, explain
from ladder.machine import (
    busy,
    device_name,
    half_precision,
    load_average,
    quiet_pytorch,
    unseen_gpu,
)
from ladder.measure.docstrings import title
from ladder.measure.matmul import matmul_flops
from ladder.measure.scripts import rungs_for
from ladder.show.console import new_table, screen


def add_arguments(parser):
    add_flags(parser, "device")


def run(args) -> int:
    """Print what the machine is, and a line for each rung that needs something of it.

    Returns 1 if a rung cannot run, or a GPU is not seen.
    """
    quiet_pytorch()
    device = pick_device(args.device)
    console = screen()
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    console.say(f"{device_name(device)}, {versions}")
    unseen = unseen_gpu() if args.device is None else None
    if unseen:
        console.say(f"note  {unseen}")
    load = busy(load_average())
    if load:
        console.say(f"note  {load}")
    # No spinner: its thread would disturb what is timed.
    console.say("trying what the rungs need: a minute or two ...")
    table = new_table("rung")
    for heading in ("runs", "can help", "why, or what is missing"):
        table.add_column(heading, overflow="fold")
    runs = "yes"
    for path in rungs_for("cpu"):
        if path.stem not in TRIALS:
            continue
        if runs == "no":  # a rung needs what those before it need
            helps, why = "–", "the same is missing"
        else:
            runs, helps, why = judge(path.stem, device)
        table.add_row(title(path), runs, helps, Text(why))
    console.print(table)
    console.say("The other rungs run where those before them do: README.md says what each removes.")
    return int(runs == "no" or unseen is not None)


def judge(stem: str, device: torch.device) -> tuple[str, str, str]:
    """Whether a rung's change runs (yes, no) and helps (yes, no, unknown or a dash), and why.

    Assumes that the rungs before it run.
    """
    try:
        return "yes", *TRIALS[stem](device)
    except Exception as error:  # libraries raise many kinds if their hardware is missing
        text = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        return "no", "–", explain(error) or text


# ------------- one trial per rung: returns whether it helps and why; raises if it does not run


def code_for_it(device: torch.device) -> tuple[str, str]:
    """Run a kernel. Raises what PyTorch does where it was built without this GPU's architecture."""
    torch.ones(8, device=device).sum().item()
    return "–", "the reference"


def tf32(device: torch.device) -> tuple[str, str]:
    """Whether the setting changes a matmul."""
    torch.set_float32_matmul_precision("high")
    if probe.matmul_units(device) == "fp32":
        return "no", "no TF32 units: the setting changes no bit of a matmul"
    return "yes", "TF32 units: the setting rounds what a matmul multiplies"


def bf16(device: torch.device) -> tuple[str, str]:
    """Whether half precision has a faster matmul than FP32, rung 02's setting on."""
    dtype = half_precision(device)
    if dtype == torch.float32:
        return "no", "no bfloat16 units: autocast stays off, and the step is rung 02's"
    name = "a bfloat16"
    if dtype == torch.float16:
        name = "no bfloat16 units, so float16 with a scaler: a float16"
    n = 768 if device.type == "cpu" else 4096
    torch.set_float32_matmul_precision("high")
    ratio = matmul_flops(device, dtype, n) / matmul_flops(device, torch.float32, n)
    # No figure: a CPU's rates vary with what else runs on it.
    if ratio > 1.1:
        return "yes", f"{name} matmul is faster than one in FP32 (timed)"
    return "no", f"{name} matmul is no faster than one in FP32 (timed)"


def compiled_step(device: torch.device) -> tuple[str, str]:
    """Whether compiled code computes what the eager one does, with an empty compile cache: steps of
    the top script at its default B and T.

    Raises UsageError if it does not: some compilers run but compute something else.
    """
    for variable in ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"):
        if os.environ.get(variable) == "1":
            return "no", f"nothing is compiled: {variable} is set"
    another = "CXX=clang++" if device.type == "cpu" else "another version of torch"
    path = rungs_for(device.type)[-1]
    script = runpy.run_path(str(path))
    torch.set_float32_matmul_precision("high")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        for model in ("gpt2", "tiny"):  # compilers write other kernels for small shapes
            print(f"compiling one layer of {model} ...", flush=True)
            args = parse_args(None, [f"--model={model}", f"--device={device}"])
            error = compiled_error(script, args)
            # Both round to half precision, in different places: on CPUs right ones differ by half a
            # per cent, wrong ones by far more. `not <`, so that NaN fails too.
            if not error < 0.1:
                raise UsageError(
                    f"a compiled step of {path.stem} --model {model} has wrong gradients (relative "
                    f"error {error:.1g}): this compiler is broken here, try {another}, or run a "
                    "rung below 05"
                )
    return "yes", "a compiled step has the gradients of an eager one (tried)"


def compiled_error(script: dict, args) -> float:
    """The largest relative error of the loss and the gradients of a compiled step, against an eager
    one. With one layer: more would run the same kernels.
    """
    device = args.device
    dtype = half_precision(device)
    scale = 2**10 if dtype == torch.float16 else 1  # far from both ends of its range
    torch.manual_seed(1337)
    config = script["GPTConfig"](**{**MODELS[args.model], "n_layer": 1})
    model = script["GPT"](config).to(device)
    shape = (2, args.batch_size, args.seq_len)
    x, y = torch.randint(config.vocab_size, shape, device=device)  # (B, T) token ids each

    def step(forward) -> list[torch.Tensor]:
        """The loss and the gradient of every parameter."""
        model.zero_grad()
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            _, loss = forward(x, y)
        (scale * loss).backward()
        return [loss.detach(), *(p.grad for p in model.parameters())]

    relative = []
    for eager, compiled in zip(step(model), step(torch.compile(model)), strict=True):
        relative.append((compiled - eager).norm() / eager.norm())
    return torch.stack(relative).max().item()


def fused_attention(device: torch.device) -> tuple[str, str]:
    """Which kernel PyTorch picks for causal attention at the scripts' default B and T.

    Raises UsageError if it does not compute what textbook attention does: some have been wrong.
    """
    if device.type == "mps":  # https://github.com/pytorch/pytorch/issues/179294
        return "unknown", "in training, torch computes it with separate operators here: measure it"
    for model in ("tiny", "gpt2"):  # head sizes 32 and 64
        args = parse_args(None, [f"--model={model}", f"--device={device}"])
        kernel, error = compared_attention(args)
        if kernel == "unknown":
            return "unknown", "the profiler of this PyTorch does not tell which kernel ran"
        if "math" in kernel:
            return "no", "no fused kernel: torch falls back to separate ones (tried)"
        # Right kernels round: in half precision they differ by a per cent. `not <`: NaN fails too.
        if not error < 0.05:
            raise UsageError(
                f"the {kernel} kernel computes something else than textbook attention (--model "
                f"{model}, T={args.seq_len}: relative error {error:.1g}): try another version of "
                "torch, or run a rung below 06"
            )
    same = "with the output and gradients of textbook attention (tried)"
    if device.type == "cpu":
        return "no", f"the {kernel} kernel runs, {same}, but at T=256 slower on CPUs we measured"
    return "yes", f"PyTorch picks the {kernel} kernel, {same}"


def compared_attention(args) -> tuple[str, float]:
    """The kernel that PyTorch picks for a layer's attention in half precision, and its error.

    That is the largest relative error in any head of the output and of the gradients of q, k and v,
    against textbook attention in FP32.
    """
    size = MODELS[args.model]
    torch.manual_seed(1337)
    shape = (args.batch_size, args.seq_len, 3 * size["n_embd"])
    qkv = torch.randn(shape, device=args.device).to(half_precision(args.device))
    recording = probe.start()
    fused = attend(qkv, size["n_head"], partial(F.scaled_dot_product_attention, is_causal=True))
    recording.stop()
    kernel = probe.effective(probe.operators(recording))["attention"]
    exact = attend(qkv.float(), size["n_head"], textbook)
    error = (fused - exact).norm(dim=(-2, -1)) / exact.norm(dim=(-2, -1))  # (4, B, nh)
    return kernel, error.max().item()


def attend(qkv: torch.Tensor, n_head: int, attention: Callable) -> torch.Tensor:
    """Output of `attention` and gradients of q, k and v, from (B, T, 3C): FP32, (4, B, nh, T, hs).

    The heads lie in memory as in the scripts.
    """
    B, T, _ = qkv.shape
    heads = []
    for part in qkv.chunk(3, dim=2):  # each (B, T, C)
        heads.append(part.view(B, T, n_head, -1).transpose(1, 2).requires_grad_())  # (B, nh, T, hs)
    y = attention(*heads)
    y.backward(heads[2].detach())  # any numbers will do
    return torch.stack([y.detach(), *(part.grad for part in heads)]).float()


def textbook(q, k, v):
    """As in baseline.py: each (B, nh, T, hs) -> (B, nh, T, hs)."""
    T = q.size(-2)
    future = torch.ones(T, T, dtype=torch.bool, device=q.device).triu(1)
    att = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))  # (B, nh, T, T)
    att = att.masked_fill(future, float("-inf"))
    return F.softmax(att, dim=-1) @ v


# Of the scripts whose change needs something of the machine.
TRIALS = {
    "baseline": code_for_it,
    "02_tf32": tf32,
    "03_bf16_autocast": bf16,
    "05_torch_compile": compiled_step,
    "06_flash_attention": fused_attention,
}
