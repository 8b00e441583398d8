"""The bare parts of a training step, each timed alone beside its bytes and FLOPs.

    ladder roofline                                  at the B and T of the scripts
    ladder roofline --batch-size 64 --seq-len 1024   on a large GPU
    ladder roofline --model tiny --seconds 0.2       a quick look

An estimate of a step rests on rates: so many TFLOP/s for matmuls, so many GB/s for the rest. This
shows which of them a device reaches in the parts of rung 10's step: each matmul (forward, and
backward to the input, dX, and to the weight, dW), attention with each backend, GELU computed with
tanh and, the same function, with a sigmoid, LayerNorm, cross-entropy and AdamW. Each runs for
--seconds; its time is the median after the first quarter, which is warm-up.

GB counts each input read once and each output written once. GFLOP is counted for matmuls and for
attention: its causal half, backward with the scores computed again. `of roof` is the share of what
the large matmul and the copy allow: the time at their rates, whichever is longer, over the time
taken; above 100 % the tensors fit into a cache. GELU, LayerNorm and cross-entropy are compiled, and
have forward and backward in one row. A * marks kernels so short that the GPU waited for Python:
take a larger batch.
"""

import json
import math
import runpy
import statistics
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import product
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Column, Table
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from ladder.cli import (
    MODELS,
    above_zero,
    add_flags,
    check_seq_len,
    given_flags,
    parse_args,
    pick_device,
)
from ladder.commands.gemm import COPIED, at_peak, seconds
from ladder.commands.process import new_folder
from ladder.commands.tables import wide_console
from ladder.errors import BadInput, explain
from ladder.files import ROOT, commit, write_whole
from ladder.machine import device_name

FLAGS = ("model", "batch_size", "seq_len", "device")
BACKENDS = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "MATH")
GELUS = {
    "tanh": lambda x: F.gelu(x, approximate="tanh"),
    "sigmoid": lambda x: x * torch.sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3)),
}


class Part(NamedTuple):
    """One operation: what it needs at least, and what allocates its tensors and returns it."""

    stage: str
    variant: str  # of those that do the same; else empty
    name: str
    calls: int  # in a step
    flops: int  # of a call; 0 where they are not counted
    bytes: int
    make: Callable[[], Callable]


def add_arguments(parser) -> None:
    add_flags(parser, *FLAGS)
    kinds = dict(choices=("bfloat16", "float16", "float32"), help="default: bfloat16")
    parser.add_argument("--dtype", **kinds)
    parser.add_argument("--seconds", type=above_zero, default=2, help="for each part (default: 2)")
    parser.add_argument("--out", help="new folder for roofline.json (default: runs/roofline-…)")


def run(args) -> int:
    """Time all parts, print and write the table; 130 after Ctrl-C. What stops it keeps those done.

    Returns 1 if a part failed, not counting attention: few devices have all its backends.
    """
    device = pick_device(args.device)
    if device.type == "mps":
        raise BadInput("ladder roofline times CUDA GPUs and CPUs: try --device cpu")
    check_seq_len(args.seq_len)
    asked = parse_args(__doc__, given_flags(args, *FLAGS))
    dtype = args.dtype or str(at_peak(device)[0]).removeprefix("torch.")
    facts = {"device": device_name(device), "torch": torch.__version__, "commit": commit()}
    facts |= {"model": asked.model, "B": asked.batch_size, "T": asked.seq_len, "dtype": dtype}
    folder, rows = new_folder(args.out, "roofline"), []
    script = runpy.run_path(str(ROOT / "speedups" / "10_fused_adamw.py"))
    model = script["GPT"](script["GPTConfig"](**MODELS[asked.model])).to(device)
    to = dict(device=device, dtype=getattr(torch, dtype))
    found = list(parts(model, asked.batch_size, asked.seq_len, to))
    facts |= {"seconds": args.seconds, "parts_in_all": len(found), "parts": rows}

    def save():
        write_whole(folder / "roofline.json", json.dumps(facts, indent=1).encode() + b"\n")

    try:
        for part in found:
            rows.append(measure(part, device, args.seconds))
            with suppress(OSError):  # of a full disk: told at the end, below the table
                save()
            outcome = rows[-1].get("failed") or f"{rows[-1]['ms']:.3f} ms"
            print(f"{len(rows)} of {len(found)} {part.name}: {outcome}", flush=True)
    except KeyboardInterrupt:
        print(f"stopped after {len(rows)} of {len(found)} parts")
    report(facts, rows, wide_console())
    save()
    print(f"Numbers: {folder / 'roofline.json'}")
    failed = any("failed" in row for row in rows if row["stage"] != "attention")
    return 130 if len(rows) < len(found) else int(failed)


def parts(model, B: int, T: int, to: dict) -> Iterator[Part]:
    """The two references, and each part of a step of `model` on B sequences of T tokens.

    `to` has the device, and the dtype of activations and of the weights in matmuls.
    """
    L, C, n_head = model.config.n_layer, model.config.n_embd, model.config.n_head
    N, V, size = B * T, model.config.vocab_size, to["dtype"].itemsize
    _, n = at_peak(to["device"])
    large = partial(matmul, "forward", n, n, n, to)
    yield Part("reference", "", "large matmul", 0, 2 * n**3, 3 * n * n * size, large)
    yield Part("reference", "", "copy", 0, 0, 2 * COPIED, partial(copy, to["device"]))
    attn, mlp = model.transformer.h[0].attn, model.transformer.h[0].mlp
    linears = {"c_attn": attn.c_attn, "c_proj": attn.c_proj, "c_fc": mlp.c_fc}
    linears |= {"mlp.c_proj": mlp.c_proj, "lm_head": model.lm_head}
    for (name, linear), kind in product(linears.items(), ("forward", "dX", "dW")):
        out, into = linear.weight.shape
        needs = 2 * N * out * into, (N * into + N * out + out * into) * size
        make = partial(matmul, kind, N, out, into, to)
        yield Part("matmuls", "", f"{name} {kind}", 1 if name == "lm_head" else L, *needs, make)
    # Two matmuls, the masked half left out, forward; backward five. All of q, k, v, y are read or
    # written, backward their gradients too.
    ways = ("forward", 2, 4), ("backward", 5, 8)
    for backend, (kind, matmuls, tensors) in product(BACKENDS, ways):
        variant = backend.removesuffix("_ATTENTION").lower()
        needs = matmuls * B * T * T * C, tensors * N * C * size
        make = partial(attention, kind, getattr(SDPBackend, backend), B, T, C, n_head, to)
        yield Part("attention", variant, f"attention {variant} {kind}", L, *needs, make)
    for variant, gelu in GELUS.items():
        make = partial(both_ways, gelu, [(N, 4 * C)], to)
        yield Part("GELU", variant, f"GELU {variant}", L, 0, 5 * N * 4 * C * size, make)
    # The residual stream is float32: x is read twice and its gradient written.
    norm = lambda x, w, b: F.layer_norm(x, (C,), w, b).to(to["dtype"])  # noqa: E731
    make = partial(both_ways, norm, [(N, C), (C,), (C,)], {**to, "dtype": torch.float32})
    yield Part("LayerNorm", "", "LayerNorm", 2 * L + 1, 0, N * C * (3 * 4 + 2 * size), make)
    make = partial(cross_entropy, N, V, to)
    yield Part("cross-entropy", "", "cross-entropy", 1, 0, 3 * N * V * size, make)
    # Float32 weight, gradient and two moments are read, and all but the gradient written.
    needs = 0, 7 * 4 * sum(p.numel() for p in model.parameters())
    for variant in ("fused", "foreach"):
        yield Part("AdamW", variant, f"AdamW {variant}", 1, *needs, partial(adamw, variant, model))


def copy(device):
    source, target = torch.ones(2, COPIED, dtype=torch.uint8, device=device)
    return lambda: target.copy_(source)


def matmul(kind, N, out, into, to):
    """Of a Linear, y = x @ w.T with x (N, into) and w (out, into); or the gradient of x or w."""
    x, w, dy = (torch.randn(shape, **to) for shape in ((N, into), (out, into), (N, out)))
    a, b = {"forward": (x, w.T), "dX": (dy, w), "dW": (dy.T, x)}[kind]
    return lambda: a @ b


def attention(kind, backend, B, T, C, n_head, to):
    """Causal attention of q, k and v (B, nh, T, hs) that lie in memory as c_attn leaves them."""
    qkv, dy = torch.randn(B, T, 3 * C, **to), torch.randn(B, T, C, **to)
    *qkv, dy = (x.view(B, T, n_head, -1).transpose(1, 2) for x in (*qkv.split(C, dim=2), dy))
    qkv = [x.detach().requires_grad_() for x in qkv]

    def forward():
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(*qkv, is_causal=True)

    if kind == "forward":
        return forward
    return partial(torch.autograd.grad, forward(), qkv, dy, retain_graph=True)


def both_ways(function, shapes, to):
    """Forward and backward of `function`, compiled, on inputs of these shapes."""
    function = torch.compile(function, dynamic=False)
    inputs = [torch.randn(shape, **to, requires_grad=True) for shape in shapes]
    dy = torch.randn_like(function(*inputs))
    return lambda: torch.autograd.grad(function(*inputs), inputs, dy)


def cross_entropy(N, V, to):
    targets = torch.randint(V, (N,), device=to["device"])
    return both_ways(lambda x: F.cross_entropy(x.float(), targets), [(N, V)], to)


def adamw(variant, model):
    weights = [p.detach().clone().requires_grad_() for p in model.parameters()]
    for p in weights:
        p.grad = torch.randn_like(p)
    return torch.optim.AdamW(weights, **{variant: True}).step


def measure(part: Part, device: torch.device, least: float) -> dict:
    """What is known of a part with its time and rates, or in `failed` why it has none.

    It runs for `least` seconds. Its time is the median without the first quarter: there an idle GPU
    raises its clock. A GPU waits for the host if Python takes as long to launch it.
    """
    row, times = part._asdict(), []
    del row["make"]
    try:
        with warnings.catch_warnings():  # which tell at length why a backend is not there
            warnings.simplefilter("ignore")
            call = part.make()
            call()  # compiles, chooses kernels
            end = time.perf_counter() + least
            while time.perf_counter() < end or len(times) < 2:
                times.append(seconds(call, device))
    except Exception as error:  # whatever a library raises where its hardware is missing
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        return {**row, "failed": explain(error) or text}
    s, host = map(statistics.median, zip(*times[len(times) // 4 :], strict=True))
    rates = {"tflop_per_s": part.flops / s / 1e12, "gb_per_s": part.bytes / s / 1e9}
    waits = device.type == "cuda" and host > 0.9 * s
    return {**row, "ms": s * 1e3, **rates, "waits_for_host": waits}


def report(facts: dict, rows: list[dict], console: Console) -> None:
    """Print the table, and what the parts of a step add up to, if all of them are there."""
    line = "{device}, torch {torch}, {model}, B={B}, T={T}, {dtype}"
    console.print(line.format(**facts), soft_wrap=True)
    heads = ("a step", "GFLOP", "GB", "ms", "ms a step", "TFLOP/s", "GB/s", "of roof")
    table = Table("part", *(Column(head, justify="right") for head in heads), padding=0)
    known = {row["name"]: row for row in rows if "ms" in row}
    flop_rate = known.get("large matmul", {}).get("tflop_per_s", math.nan)
    byte_rate = known.get("copy", {}).get("gb_per_s", math.nan)
    steps = defaultdict(lambda: defaultdict(float))  # stage -> variant -> ms a step
    for row in rows:
        ms = row["calls"] * row.get("ms", math.inf)
        if row["calls"]:
            steps[row["stage"]][row["variant"]] += ms
        if "ms" in row:
            values = (row["calls"], row["flops"] / 1e9, row["bytes"] / 1e9, row["ms"], ms)
            values = (*values, row["tflop_per_s"], row["gb_per_s"])
            kinds = (".0f", ".2f", ".3f", ".3f", ".2f", ".3f", ".1f")
            cells = [f"{v:{kind}}" if v else "–" for v, kind in zip(values, kinds, strict=True)]
            cells[3] += "*" * row["waits_for_host"]
            share = max(row["tflop_per_s"] / flop_rate, row["gb_per_s"] / byte_rate)
            table.add_row(row["name"], *cells, f"{share:.0%}", end_section=row["name"] == "copy")
    console.print(table)
    if len(rows) < facts["parts_in_all"]:
        console.print(f"{len(rows)} of {facts['parts_in_all']} parts: they add up to no step.")
        return
    best = {stage: min((ms, way) for way, ms in ways.items()) for stage, ways in steps.items()}
    terms = " + ".join(
        f"{stage} {way}".strip() + f" {ms:.2f}" if ms < math.inf else f"{stage} failed"
        for stage, (ms, way) in best.items()
    )
    total = sum(ms for ms, _ in best.values())
    rest = "without embeddings, residual additions, casts and clipping"
    sums = f" = {total:.2f} ms a step, {rest}" if total < math.inf else ": they add up to no step"
    console.print(f"The fastest of each: {terms}{sums}.")
