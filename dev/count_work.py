"""Count the work of a training step of every rung, on fake tensors: nothing is computed.

    python dev/count_work.py         writes ladder/measure/work.json

It counts the scripts whose code has changed, or all if this program has, and prints a line for
each; all take a minute or two. A step of GPT-2 124M is traced at two batch sizes, with one and two
layers: at T=1024 for a GPU, at T=256 for a CPU, the defaults of the scripts. Every count is linear
in B and in the number of layers, so that 12 layers and any B follow; in T it is not.

- FLOPs: of the matmuls (`linear`), and of the two products in attention, forward and backward
  (`attention`). A GPU's flash kernel leaves out what is masked: half. A CPU's masks afterwards:
  at T=256 it leaves out nothing.
- Bytes: each kernel reads its inputs and writes its outputs once. Rungs up to 04 run one kernel per
  operator. From rung 05 on, operators between two matmuls are fused as the compiler fuses them: see
  `count_graph`. Caches are not modelled.
- The types are those of autocast. CUDA's has bfloat16 into matmuls, FP32 into softmax and
  LayerNorm. The loss is FP32 in a compiled step, bfloat16 in another: see `cross_entropy`. Fake
  CUDA tensors need a CUDA build, so CPU tensors are traced, and `CudaAutocast` casts them.
- The optimizer is a formula: words of 4 bytes moved per parameter.
"""

import ast
import hashlib
import json
import math
import operator
import runpy
from collections import defaultdict
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import torch
from torch._functorch.aot_autograd import aot_function, make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ladder.cli import Parser
from ladder.files import write_atomic
from ladder.measure.notes import code_of
from ladder.measure.scripts import rungs_for
from ladder.measure.work import SIZES, WORK, counted

COUNTED = ("linear_flops", "attention_flops", "linear_bytes", "attention_bytes", "other_bytes")
COUNTED += ("kernels",)
MATMULS = {"mm", "addmm", "bmm"}
# Operators that only describe or allocate memory.
FREE = {"detach", "alias", "_unsafe_view", "empty", "empty_like", "new_empty", "new_empty_strided"}
# One number of each group, or whole rows of a table: all of the input is needed for one output.
REDUCTIONS = {"sum", "var_mean", "amax", "_unsafe_masked_index_put_accumulate"}
# Words per parameter: AdamW as single operators, as one fused kernel; the norm of the gradients
# and their scaling. (lerp 3, square 5, root 2, correction 2, epsilon 2, update 4, decay 2.)
ADAMW, FUSED_ADAMW, CLIPPING = 20, 7, 3


class CudaAutocast(TorchFunctionMode):
    """What torch.autocast("cuda", torch.bfloat16) casts, for tensors on any device."""

    low = frozenset({F.linear, torch.Tensor.matmul, F.scaled_dot_product_attention})
    high = frozenset({F.softmax, F.layer_norm, F.cross_entropy})

    def __init__(self, compiled: bool):
        super().__init__()
        self.compiled = compiled
        self.weights = {}  # each is cast once a step

    def cast(self, value, dtype):
        if not isinstance(value, torch.Tensor) or value.dtype in (dtype, torch.int64, torch.bool):
            return value
        if value.is_leaf and value.requires_grad:
            if id(value) not in self.weights:
                self.weights[id(value)] = value.to(dtype)
            return self.weights[id(value)]
        return value.to(dtype)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is F.cross_entropy and not self.compiled:
            return cross_entropy(*args)  # logits and targets
        dtype = torch.bfloat16 if function in self.low else torch.float32
        if function in self.low | self.high:
            args = [self.cast(value, dtype) for value in args]
            kwargs = {name: self.cast(value, dtype) for name, value in kwargs.items()}
        return function(*args, **kwargs)


def cross_entropy(logits, targets):
    """As CUDA runs it in bfloat16: autocast has a kernel for it on CPUs only, and log_softmax is
    asked for the type of its input. nll_loss alone is cast to FP32."""
    return F.nll_loss(F.log_softmax(logits, -1).float(), targets)


class Operators(TorchDispatchMode):
    """Adds up the work of every operator that runs inside, each a kernel of its own."""

    def __init__(self, device: str):
        super().__init__()
        self.device, self.work = device, defaultdict(int)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function.namespace == "aten" and not function.is_view:
            self.add(name_of(function), tensors((args, kwargs)), tensors(result))
        return result

    def add(self, name: str, inputs: list[torch.Tensor], outputs: list[torch.Tensor]):
        """The work of one operator."""
        read, written = (sum(map(moved, group)) for group in (inputs, outputs))
        kernels = 1
        if name in FREE:
            return
        if name in MATMULS:
            part = "attention" if name == "bmm" else "linear"
            self.work[f"{part}_flops"] += 2 * outputs[0].numel() * inputs[-1].shape[-2]
        elif "scaled_dot_product" in name:
            q = inputs["backward" in name]  # backward: after out's gradient
            part, products = "attention", 5 if "backward" in name else 2
            each = 1 if self.device == "cuda" else 2  # 2 FLOPs, and on a GPU half of all pairs
            self.work["attention_flops"] += each * products * q.numel() * q.shape[-2]
        else:
            part = "other"
            if name == "embedding":  # as many rows as it writes
                read = written + moved(inputs[1])
            elif name in ("embedding_dense_backward", "nll_loss_backward"):  # zeros, then scatter
                kernels, read = 2, 2 * moved(inputs[0]) if "embedding" in name else 0
            elif name == "nll_loss_forward":
                read = 2 * moved(inputs[1])
            elif name == "masked_fill":  # a clone, then a fill in place
                kernels, read, written = 2, 2 * written + moved(inputs[1]), 2 * written
            elif name == "_log_softmax":  # its rows are too long for a second look in cache
                read *= 2
            elif name == "_log_softmax_backward_data":
                read += moved(inputs[0])
        self.work[f"{part}_bytes"] += read + written
        self.work["kernels"] += kernels


def name_of(function) -> str:
    return function.overloadpacket.__name__


def tensors(tree) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def moved(tensor: torch.Tensor) -> int:
    """Bytes of a tensor; what `expand` repeats is there once."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return math.prod(size for size, stride in sizes if stride) * tensor.element_size()


def step(script: Path, B: int, layers: int, device: str = "cuda") -> dict[str, int]:
    """The work of one step but for the optimizer."""
    source = script.read_text(encoding="utf-8")
    rung = runpy.run_path(str(script))
    with FakeTensorMode():
        model = rung["GPT"](rung["GPTConfig"](n_layer=layers))
        x, y = torch.zeros(2, B, SIZES[device], dtype=torch.int64)
        autocast, counter = nullcontext(), Operators(device)
        compiled = "torch.compile(" in source
        if "torch.autocast(" in source:
            on_cpu = torch.autocast("cpu", torch.bfloat16)
            autocast = on_cpu if device == "cpu" else CudaAutocast(compiled)
        if compiled:
            for graph in graphs(model, x, y, autocast):
                count_graph(graph, counter)
        else:
            with counter:
                with autocast:
                    _, loss = model(x, y)
                loss.backward()
    return counter.work


# ------------------------------------------------------------------------------ compiled rungs


def graphs(model, x, y, autocast) -> list[torch.fx.Graph]:
    """Forward and backward as the compiler gets them: decomposed, and cut where it recomputes."""
    found = []

    def keep(module, inputs):
        found.append(module.graph)
        return make_boxed_func(module.forward)

    def forward(parameters, buffers, x, y):
        with autocast:
            return torch.func.functional_call(model, (parameters, buffers), (x, y))

    traced = aot_function(
        forward,
        fw_compiler=keep,
        bw_compiler=keep,
        partition_fn=min_cut_rematerialization_partition,
        decompositions=select_decomp_table(),
    )
    _, loss = traced(dict(model.named_parameters()), dict(model.named_buffers()), x, y)
    loss.backward()
    return found


def count_graph(graph: torch.fx.Graph, counter: Operators):
    """Add up a graph whose operators between matmuls run fused.

    Operators are in one kernel if they are joined and as many matmuls deep: such a group cannot
    wait for itself. It reads each of its outer inputs and writes each of its outer outputs once.
    What it only computes element by element from fewer bytes is computed again and not written.
    """
    base, depth, group, columns = {}, {}, {}, {}
    users = defaultdict(set)  # groups and matmuls outside its own group that read a value

    def own(node):  # the group of a node, by its first member
        while group[node] is not node:
            node = group[node]
        return node

    for node in graph.nodes:
        sources = [base[source] for source in node.all_input_nodes]
        is_view = node.target is operator.getitem or getattr(node.target, "is_view", False)
        if node.op == "call_function" and is_view and sources:
            base[node] = sources[0]
            continue
        base[node] = node
        # -1: a constant, which every reader makes for itself
        start = 0 if node.op == "placeholder" else -1
        depth[node] = max((depth[s] + is_alone(s) for s in sources), default=start)
        if node.op == "call_function" and not is_alone(node):
            group[node] = node
            if shape := column_sum(node):  # those of one shape are one kernel
                group[node] = columns.setdefault((depth[node], shape), node)
                continue
            for source in sources:
                if source in group and depth[source] == depth[node] and not column_sum(source):
                    group[own(source)] = own(node)
    for node in graph.nodes:
        if base[node] is node:
            for source in node.all_input_nodes:
                user = own(node) if node in group else node
                if base[source] not in group or own(base[source]) is not user:
                    users[base[source]].add(user)

    def needed(node) -> set:
        """The values in memory from which one that is computed element by element is made."""
        leaves = set()
        for source in node.all_input_nodes:
            source_base = base[source]
            if source_base in group and not written(source_base):
                leaves |= needed(source_base)
            elif depth[source_base] >= 0:
                leaves.add(source_base)
        return leaves

    @cache
    def written(node) -> bool:
        """Whether a value of a group has to be in memory."""
        outside = users[node]
        if not outside or name_of(node.target) in REDUCTIONS:
            return bool(outside)
        again = sum(map(size, needed(node))) * len(outside)
        return not outside <= group.keys() or again > size(node) * (len(outside) + 1)

    reads, writes = defaultdict(dict), defaultdict(int)
    for node in group:
        if depth[node] < 0:
            continue
        mine = own(node)
        if written(node):
            writes[mine] += size(node)
        for source in node.all_input_nodes:
            value = base[source]
            if value in group and (own(value) is mine or depth[value] < 0):
                continue
            if value not in group or written(value):
                leaves = {value: source}
            else:
                leaves = {leaf: leaf for leaf in needed(value)}
            for leaf, seen in leaves.items():
                rows = name_of(node.target) in ("embedding", "gather", "index")
                one = size(node) if rows and source is node.all_input_nodes[0] else size(seen)
                reads[mine].setdefault(leaf, {})[seen] = one
    for mine in {own(node) for node in group}:
        read = sum(min(size(leaf), sum(seen.values())) for leaf, seen in reads[mine].items())
        if read + writes[mine]:
            counter.work["other_bytes"] += read + writes[mine]
            counter.work["kernels"] += 1
    for node in graph.nodes:
        if is_alone(node):
            inputs = [source.meta["val"] for source in node.all_input_nodes]
            counter.add(name_of(node.target), tensors(inputs), tensors(node.meta["val"]))


def is_alone(node) -> bool:
    """Whether a node is a matmul or a flash kernel: nothing is fused into it."""
    name = name_of(node.target) if hasattr(node.target, "overloadpacket") else ""
    return name in MATMULS or "scaled_dot_product" in name


def column_sum(node) -> tuple[int, ...] | None:
    """The shape that a sum over all but the last dimension has read, else None.

    It runs across the rows that other operators of its group run along: it is a kernel of its own.
    """
    if node.op != "call_function" or name_of(node.target) != "sum" or len(node.args) < 2:
        return None
    shape = tuple(node.args[0].meta["val"].shape)
    last = len(shape) - 1
    return None if any(dim in (-1, last) for dim in node.args[1]) else shape


def size(node) -> int:
    return sum(map(moved, tensors(node.meta["val"])))


# ------------------------------------------------------------------------------ all of it


def count(script: Path, device: str = "cuda", layers: int = 12) -> dict:
    """The work of a script's step: of each quantity a constant and a slope in B, and the unit."""
    # B from 2 on: with one sequence, some copies become views.
    at = {(B, L): step(script, B, L, device) for B in (2, 3) for L in (1, 2)}
    found = {}
    for quantity in COUNTED:
        slopes = {L: at[3, L][quantity] - at[2, L][quantity] for L in (1, 2)}
        starts = {L: at[2, L][quantity] - 2 * slopes[L] for L in (1, 2)}
        found[quantity] = [v[1] + (layers - 1) * (v[2] - v[1]) for v in (starts, slopes)]
    source = script.read_text(encoding="utf-8")
    words = FUSED_ADAMW if "fused=True" in source else ADAMW
    words += CLIPPING if "clip_grad_norm_(" in source else 0
    rung = runpy.run_path(str(script))
    with FakeTensorMode():
        model = rung["GPT"](rung["GPTConfig"](n_layer=layers))
    found["optimizer_bytes"] = [4 * words * sum(p.numel() for p in model.parameters()), 0]
    unit = "tf32" if 'set_float32_matmul_precision("high")' in source else "fp32"
    return {"unit": "half" if "torch.autocast(" in source else unit, **found}


def fingerprint(script: Path) -> str:
    """The hash of what a script's counts depend on: its code and this program's, not comments."""
    digest = hashlib.sha256()
    for path in (script, Path(__file__)):
        code = ast.parse(code_of(path))
        digest.update(ast.unparse(code).encode())
    return digest.hexdigest()[:12]


def count_changed():
    """Count each script whose code is not that of its counts in work.json, and write the file."""
    counts = {}
    for device in SIZES:
        counts[device] = {}
        for script in rungs_for(device):
            code = fingerprint(script)
            found = counted().get(device, {}).get(script.stem, {})
            if found.get("code") != code:
                print(f"counting {script.stem} for {device}", flush=True)
                found = count(script, device) | {"code": code}
            counts[device][script.stem] = found
    write_atomic(WORK, json.dumps(counts, indent=1).encode() + b"\n")
    counted.cache_clear()


if __name__ == "__main__":
    Parser(__doc__).parse_args()
    count_changed()
