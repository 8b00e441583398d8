"""Count the work of a training step of a script, on fake tensors: nothing is computed.

A step of GPT-2 124M is traced at two batch sizes, with one and two layers: at T=1024 for a GPU, at
T=256 for a CPU, the defaults of the scripts. Every count is linear in B and in the number of
layers, so that 12 layers and any B follow; in T it is not.

- FLOPs: of the matmuls (`linear`), and of the two products in attention, forward and backward
  (`attention`). A GPU's flash kernel leaves out what is masked: half. A CPU's masks afterwards:
  at T=256 it leaves out nothing.
- Bytes: each kernel reads its inputs and writes its outputs once. Rungs up to 04 run one kernel per
  operator. From rung 05 on, operators between two matmuls are fused as the compiler fuses them: see
  `FusedGraph`. Caches are not modelled.
- The types are those of autocast. CUDA's has bfloat16 into matmuls, FP32 into softmax and
  LayerNorm. The loss is FP32 in a compiled step, bfloat16 in another: see `cross_entropy`. Fake
  CUDA tensors need a CUDA build, so CPU tensors are traced, and `CudaAutocast` casts them.
- The optimizer is a formula: words of 4 bytes moved per parameter.
- PyTorch 2.9 and 2.13 give the same counts. With 2.14 a compiled step has one small kernel more.
"""

import math
import operator
import runpy
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch import nn
from torch._functorch.aot_autograd import aot_function, make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ladder.measure.work import SIZES

COUNTED = (
    "linear_flops",
    "attention_flops",
    "linear_bytes",
    "attention_bytes",
    "other_bytes",
    "kernels",
    "optimizer_bytes",
)
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

    def cast(self, value: object, dtype: torch.dtype) -> object:
        if not isinstance(value, torch.Tensor) or value.dtype in (dtype, torch.int64, torch.bool):
            return value
        if value.is_leaf and value.requires_grad:
            if id(value) not in self.weights:
                self.weights[id(value)] = value.to(dtype)
            return self.weights[id(value)]
        return value.to(dtype)

    def __torch_function__(
        self, function: Callable, types: tuple, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        if function is F.cross_entropy and not self.compiled:
            return cross_entropy(*args)  # logits and targets
        dtype = torch.bfloat16 if function in self.low else torch.float32
        if function in self.low | self.high:
            args = [self.cast(value, dtype) for value in args]
        return function(*args, **(kwargs or {}))


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """As CUDA runs it in bfloat16: autocast has a kernel for it on CPUs only, and log_softmax is
    asked for the type of its input. nll_loss alone is cast to FP32."""
    return F.nll_loss(F.log_softmax(logits, -1).float(), targets)


class Operators(TorchDispatchMode):
    """Adds up the work of every operator that runs inside, each a kernel of its own."""

    def __init__(self, device: str):
        super().__init__()
        self.device, self.work = device, defaultdict(int)

    def __torch_dispatch__(
        self, function: Callable, types: tuple, args: tuple = (), kwargs: dict | None = None
    ) -> object:
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


def name_of(function: Callable) -> str:
    return function.overloadpacket.__name__


def tensors(tree: object) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def moved(tensor: torch.Tensor) -> int:
    """Bytes of a tensor; what `expand` repeats is there once."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return math.prod(size for size, stride in sizes if stride) * tensor.element_size()


def step(script: Path, B: int, layers: int, device: str) -> dict[str, int]:
    """The work of one step."""
    source = script.read_text("utf-8")
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
                FusedGraph(graph).add_to(counter)
        else:
            with counter:
                with autocast:
                    loss = model(x, y)
                loss.backward()
    words = FUSED_ADAMW if "fused=True" in source else ADAMW
    words += CLIPPING if "clip_grad_norm_(" in source else 0
    counter.work["optimizer_bytes"] = 4 * words * sum(p.numel() for p in model.parameters())
    return counter.work


# ------------------------------------------------------------------------------ compiled rungs


def graphs(
    model: nn.Module, x: torch.Tensor, y: torch.Tensor, autocast: AbstractContextManager
) -> list[Graph]:
    """Forward and backward as the compiler gets them: decomposed, and cut where it recomputes."""
    found = []

    def keep(module: GraphModule, inputs: list) -> Callable:
        found.append(module.graph)
        return make_boxed_func(module.forward)

    def forward(parameters: dict, buffers: dict, x: torch.Tensor, y: torch.Tensor) -> tuple:
        with autocast:
            return torch.func.functional_call(model, (parameters, buffers), (x, y))

    traced = aot_function(
        forward,
        fw_compiler=keep,
        bw_compiler=keep,
        partition_fn=min_cut_rematerialization_partition,
        decompositions=select_decomp_table(),
    )
    loss = traced(dict(model.named_parameters()), dict(model.named_buffers()), x, y)
    loss.backward()
    return found


class FusedGraph:
    """Which operators of a compiled graph run as one kernel, and which values are in memory.

    Operators are in one kernel if they are joined and as many matmuls deep: such a kernel cannot
    wait for itself. It reads each of its outer inputs and writes each of its outer outputs once.
    What it only computes element by element from fewer bytes is computed again and not written.
    """

    def __init__(self, graph: Graph):
        self.nodes = list(graph.nodes)
        self.value = {}  # of each node: a view's is that of the node whose memory it shows
        self.depth = {}  # of each value, the matmuls before it; -1: a constant
        self.joined = {}  # of each fused operator, another one of its kernel; one has itself
        self.made_of = {}  # of each fused operator, the values in memory that it is computed from
        self.written = set()  # fused operators whose result is in memory
        self.join_operators()
        self.place_values()

    def join_operators(self):
        """First pass: find the operators that run as one kernel."""
        columns = {}  # sums over columns: those of one depth and shape are one kernel
        for node in self.nodes:
            inputs = [self.value[source] for source in node.all_input_nodes]
            if is_view(node) and inputs:
                self.value[node] = inputs[0]
                continue
            self.value[node] = node
            start = 0 if node.op == "placeholder" else -1  # every reader makes a constant itself
            self.depth[node] = max((self.depth[i] + is_alone(i) for i in inputs), default=start)
            if node.op != "call_function" or is_alone(node):
                continue
            shape = column_sum(node)
            if shape:
                self.joined[node] = columns.setdefault((self.depth[node], shape), node)
                continue
            self.joined[node] = node
            for value in inputs:
                same_depth = value in self.joined and self.depth[value] == self.depth[node]
                if same_depth and not column_sum(value):
                    self.joined[self.kernel(value)] = self.kernel(node)

    def kernel(self, node: Node) -> Node:
        """The kernel that a node runs in, by the operator that is joined to itself.

        What is not fused is a kernel of its own.
        """
        while self.joined.get(node, node) is not node:
            node = self.joined[node]
        return node

    def place_values(self):
        """Second pass, from the inputs on: find the values that have to be in memory."""
        readers = self.readers()
        for node in self.joined:
            values = set()
            for source in node.all_input_nodes:
                values |= self.in_memory(self.value[source])
            self.made_of[node] = values
            if self.is_written(node, readers[node]):
                self.written.add(node)

    def readers(self) -> dict[Node, set[Node]]:
        """The kernels, matmuls and outputs that read a value of another kernel."""
        found = defaultdict(set)
        for node in self.nodes:
            if self.value[node] is not node:  # a view
                continue
            for source in node.all_input_nodes:
                value = self.value[source]
                if self.kernel(value) is not self.kernel(node):
                    found[value].add(self.kernel(node))
        return found

    def in_memory(self, value: Node) -> set[Node]:
        """What is read for a value: itself, or what it is computed from again; no constant."""
        if value in self.joined and value not in self.written:
            return self.made_of[value]
        return {value} if self.depth[value] >= 0 else set()

    def is_written(self, node: Node, readers: set[Node]) -> bool:
        """Whether the result of a fused operator has to be in memory for its readers."""
        if not readers:
            return False
        if name_of(node.target) in REDUCTIONS or not readers <= self.joined.keys():
            return True
        again = sum(map(size, self.made_of[node])) * len(readers)
        return again > size(node) * (len(readers) + 1)

    def add_to(self, counter: Operators):
        """Add up the work of all kernels and matmuls."""
        kernels = self.moved_by_kernel()
        counter.work["other_bytes"] += sum(kernels.values())
        counter.work["kernels"] += len(kernels)
        for node in self.nodes:
            if is_alone(node):
                inputs = [source.meta["val"] for source in node.all_input_nodes]
                counter.add(name_of(node.target), tensors(inputs), tensors(node.meta["val"]))

    def moved_by_kernel(self) -> dict[Node, int]:
        """The bytes that each kernel reads and writes."""
        moved_bytes = defaultdict(int)
        reads = defaultdict(dict)  # by kernel and value: the bytes of each view of it
        for node in self.joined:
            if self.depth[node] < 0:
                continue
            kernel = self.kernel(node)
            if node in self.written:
                moved_bytes[kernel] += size(node)
            for source in node.all_input_nodes:
                value = self.value[source]
                if self.kernel(value) is kernel:
                    continue
                for read in self.in_memory(value):
                    view = source if read is value else read
                    views = reads[kernel].setdefault(read, {})
                    views[view] = size(node) if takes_rows(node, source) else size(view)
        for kernel, values in reads.items():
            for value, views in values.items():
                moved_bytes[kernel] += min(size(value), sum(views.values()))
        return moved_bytes


def is_view(node: Node) -> bool:
    """Whether a node only shows the memory of its first input, or picks one of several outputs."""
    return node.target is operator.getitem or getattr(node.target, "is_view", False)


def takes_rows(node: Node, source: Node) -> bool:
    """Whether an operator reads no more of this input than it writes."""
    picks = name_of(node.target) in ("embedding", "gather", "index")
    return picks and source is node.all_input_nodes[0]


def is_alone(node: Node) -> bool:
    """Whether a node is a matmul or a flash kernel: nothing is fused into it."""
    name = name_of(node.target) if hasattr(node.target, "overloadpacket") else ""
    return name in MATMULS or "scaled_dot_product" in name


def column_sum(node: Node) -> tuple[int, ...] | None:
    """The shape that a sum over all but the last dimension has read, else None.

    It runs across the rows that other operators of its group run along: it is a kernel of its own.
    """
    if name_of(node.target) != "sum" or len(node.args) < 2:
        return None
    shape = tuple(node.args[0].meta["val"].shape)
    last = len(shape) - 1
    return None if any(dim in (-1, last) for dim in node.args[1]) else shape


def size(node: Node) -> int:
    """The bytes of what a node computes."""
    return sum(map(moved, tensors(node.meta["val"])))


# ------------------------------------------------------------------------------ all of it


def count(script: Path, device: str) -> dict:
    """The work of a script's step: of each quantity a constant and a slope in B, and the unit."""
    # B from 2 on: with one sequence, some copies become views.
    work = {}
    for B in (2, 3):
        one, two = step(script, B, 1, device), step(script, B, 2, device)
        work[B] = {key: one[key] + 11 * (two[key] - one[key]) for key in COUNTED}
    found = {}
    for key in COUNTED:
        slope = work[3][key] - work[2][key]
        found[key] = [work[2][key] - 2 * slope, slope]
    source = script.read_text("utf-8")
    unit = "tf32" if 'set_float32_matmul_precision("high")' in source else "fp32"
    return {"unit": "half" if "torch.autocast(" in source else unit, **found}
