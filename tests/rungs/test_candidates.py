"""Each candidate does what it says, as far as a CPU can tell; what only CUDA tells is marked so."""

import pytest
import torch
from helpers import TINY, load, random_batch, relative_error
from models import losses_of, one_fused, spied_run, tiny
from torch.fx import symbolic_trace
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ladder import machine
from ladder.measure.docstrings import low_precision
from ladder.measure.scripts import branch, number_of

# Not conftest's: a new rung may have the number of a candidate.
SCRIPTS = {number_of(path): path for path in branch("candidates")}
NUMBERS = list(SCRIPTS)
B, T, V = 2, 48, 2048  # V is small, for speed


@pytest.fixture(autouse=True)
def in_bfloat16(monkeypatch):
    """Also on a CPU without AVX-512, slowly: from 14 on the scripts refuse those."""
    monkeypatch.setattr(machine, "half_precision", lambda _: torch.bfloat16)


def check_13(module, *_):
    model = tiny(module, vocab_size=V)
    x, y = random_batch(B, T, V)
    logits, none = model(x)
    assert logits.shape == (B, T, V) and none is None
    assert model(x, y)[0] is None


def check_14(module, *_):
    model = tiny(module, vocab_size=V)
    found = []

    def note_dtypes(_, inputs, output):
        found.append(inputs[0].dtype)
        found.append(output.dtype)

    for block in model.transformer.h:
        block.register_forward_hook(note_dtypes)
    with torch.autocast("cpu", torch.bfloat16):
        model(*random_batch(B, T, V))
    assert found == [torch.bfloat16] * 8  # of four blocks


def check_15(module, *_):
    mlp = module.MLP(module.GPTConfig(**TINY))
    mlp.c_fc, mlp.c_proj = torch.nn.Identity(), torch.nn.Identity()
    x = torch.linspace(-12, 12, 4001)
    expected = F.gelu(x, approximate="tanh")
    torch.testing.assert_close(mlp(x), expected, rtol=1e-5, atol=1e-6)
    rounded_once = mlp(x.bfloat16()).bfloat16()
    torch.testing.assert_close(rounded_once, expected.bfloat16(), rtol=2**-4, atol=1e-3)
    assert "sigmoid" in symbolic_trace(mlp).code


def loss_errors(module, N, C, V, scale=1, dtype=torch.float32):
    """The relative errors of the loss of N rows, and of the gradients of x and weight."""
    torch.manual_seed(0)
    x = torch.randn(N, C).to(dtype).requires_grad_()
    weight = (torch.randn(V, C) * scale).to(dtype).requires_grad_()
    targets = torch.randint(0, V, (N,))
    exact = F.cross_entropy(x.float() @ weight.float().t(), targets)
    loss = module.LinearCrossEntropy.apply(x, weight, targets)
    # Of a loss that is scaled, as accumulation scales it.
    found = torch.autograd.grad(3 * loss, [x, weight])
    expected = torch.autograd.grad(3 * exact, [x, weight])
    errors = [relative_error(loss, exact)]
    for value, right in zip(found, expected, strict=True):
        assert value.dtype == dtype
        errors.append(relative_error(value, right))
    return errors


def check_16(module, *_):
    assert max(loss_errors(module, 7, 16, 50)) < 1e-6
    assert max(loss_errors(module, 7, 16, 50, dtype=torch.bfloat16)) < 0.05
    model = tiny(module, vocab_size=V)
    with torch.autocast("cpu", torch.bfloat16):
        _, loss = model(*random_batch(B, T, V))
    _, _, gradient = loss.grad_fn.saved_tensors  # x, weight, and that of the logits
    assert gradient.shape == (B * T, V) and gradient.dtype == torch.bfloat16


class FakeGraph(TorchDispatchMode):
    """A CUDA graph as a CPU can have one. Recording keeps each operator with its tensors, and puts
    back what it wrote. A replay runs them again, and copies results to where the recorded ones are.
    """

    def __init__(self):
        super().__init__()
        self.calls = []
        self.before = {}
        self.replays = 0
        self.cuda_graph = self

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        for argument, value in zip(op._schema.arguments, args, strict=False):
            if argument.alias_info and argument.alias_info.is_write:
                for tensor in tree_leaves(value):
                    before = tensor.detach().clone()
                    self.before.setdefault(tensor.data_ptr(), (tensor, before))
        out = op(*args, **kwargs)
        self.calls.append((op, args, kwargs, out))
        return out

    def __exit__(self, *error):
        super().__exit__(*error)
        with torch.no_grad():
            for tensor, value in self.before.values():
                tensor.copy_(value)

    @torch.no_grad()
    def replay(self):
        self.replays += 1
        for op, args, kwargs, out in self.calls:
            again = op(*args, **kwargs)
            for then, now in zip(tree_leaves(out), tree_leaves(again), strict=True):
                if isinstance(then, torch.Tensor) and then.data_ptr() != now.data_ptr():
                    then.copy_(now)


def check_17(module, run_main, monkeypatch):
    graph = FakeGraph()
    _, plain = spied_run(load(SCRIPTS[17]), run_main, monkeypatch, 5)
    with monkeypatch.context() as patch:
        patch.setattr(module, "step_graph", lambda *_: graph)
        patch.setattr(torch.Tensor, "pin_memory", lambda ids: ids)
        spy, log = spied_run(module, run_main, monkeypatch, 5)
    assert all(group["capturable"] for group in spy.param_groups) and graph.replays == 4
    for found, expected in zip(log.steps, plain.steps, strict=True):
        for key in ("loss", "norm", "lr"):
            assert found[key] == pytest.approx(expected[key], rel=1e-6)


def check_18(module, run_main, monkeypatch):
    asked = []

    def note_options(model, **options):
        asked.append(options)
        return model

    monkeypatch.setattr(torch, "compile", note_options)
    run_main(module, "--steps", 1)
    assert asked == [{"options": {"coordinate_descent_tuning": True}}]


def scaled_mm_of_cuda(a, b, scale_a, scale_b, multiply=torch._scaled_mm, **how):
    """torch._scaled_mm with what CUDA asks for: layouts, sizes, types (of one scale each)."""
    assert a.is_contiguous() and b.stride() == (1, len(b))
    for size in (*a.shape[1:], *b.shape):
        assert size % 16 == 0
    assert b.dtype == torch.float8_e4m3fn
    for scale in (scale_a, scale_b):
        assert (scale.dtype, scale.numel()) == (torch.float32, 1)
    # The long sum, over the vocabulary, is not done in the short accumulator.
    assert how.pop("out_dtype") == torch.bfloat16
    assert bool(how) == (a.dtype == torch.float8_e4m3fn)
    return multiply(a, b, scale_a, scale_b, out_dtype=torch.bfloat16, **how)


def check_19(module, run_main, monkeypatch):
    monkeypatch.setattr(torch, "_scaled_mm", scaled_mm_of_cuda)
    loss, *gradients = loss_errors(module, 64, 128, 512, 0.1, torch.bfloat16)
    assert loss < 2e-3
    assert min(gradients) > 0.003 and max(gradients) < 0.08  # 2 bits of mantissa: 4 % on average
    x = torch.randn(64, 128).bfloat16() * 1e-4
    small, scale = module.to_fp8(x)
    assert small.dtype == torch.float8_e4m3fn and small.float().abs().max() == 448
    torch.testing.assert_close(small.float() * scale, x.float(), rtol=2**-4, atol=1e-6)
    zeros, _ = module.to_fp8(torch.zeros(4, 4))
    assert not zeros.float().any()


@pytest.mark.parametrize("number", NUMBERS)
def test_candidate_does_what_it_says(number, run_main, monkeypatch):
    check = globals()[f"check_{number}"]
    check(load(SCRIPTS[number]), run_main, monkeypatch)


@pytest.mark.cuda
@pytest.mark.parametrize("number", NUMBERS)
def test_trains_on_cuda(number, cuda_log):
    if low_precision(SCRIPTS[number]) and torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("this GPU has no FP8 units")
    before, log = cuda_log(10), cuda_log(number)
    within = 0.1 if low_precision(SCRIPTS[number]) else 0.02
    assert losses_of(log) == pytest.approx(losses_of(before), abs=within)
    assert log.effective["compiled"] == "yes" and log.effective["optimizer"] == "fused"
    assert one_fused(log.effective["attention"]) == "fused"
    if number == 17:  # a graph that read the same batch again would learn it
        eager = losses_of(cuda_log(16))
        assert losses_of(log) == pytest.approx(eager, abs=0.01)
