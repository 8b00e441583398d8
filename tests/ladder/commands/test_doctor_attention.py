"""ladder doctor compares the fused attention with textbook attention."""

import pytest
import torch
from helpers import SMALLER
from torch.nn import functional as F

from ladder.cli import MODELS, parse_args
from ladder.commands import doctor

CPU = torch.device("cpu")


@pytest.fixture
def small(monkeypatch):
    for model in ("gpt2", "tiny"):
        monkeypatch.setitem(MODELS, model, SMALLER)


def judged():
    return doctor.judge("06_flash_attention", CPU)


def test_a_right_kernel_is_said_to_be_right(small):
    runs, _, why = judged()
    assert runs == "yes"
    assert "with the output and gradients of textbook attention (tried)" in why


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("model", ["tiny", "gpt2"])
def test_a_right_kernel_is_far_from_the_limit(model, dtype, monkeypatch):
    monkeypatch.setattr(doctor, "half_precision", lambda _: dtype)
    args = parse_args(None, [f"--model={model}", "--device=cpu", "--batch-size=1"])
    kernel, error = doctor.compared_attention(args)
    assert "math" not in kernel and error < 0.02


def wrong_output(y, *_):
    return y * 1.1


def not_causal(_, q, k, v):
    return F.softmax(q @ k.transpose(-2, -1) / q.size(-1) ** 0.5, dim=-1) @ v


def wrong_gradient(which):
    """A kernel with a right output and a wrong gradient of one head of q, k or v."""

    def run(y, *heads):
        def spoil(grad):
            grad = grad.clone()
            grad[-1, -1] *= 0.9
            return grad

        heads[which].register_hook(spoil)
        return y

    return run


def nan_in_a_row(y, q, *_):
    """As the gradient of q has had in cuDNN's attention."""
    q.register_hook(lambda grad: grad.index_fill(2, torch.tensor([5]), torch.nan))
    return y


@pytest.mark.parametrize(
    "broken",
    [
        wrong_output,
        not_causal,
        wrong_gradient(0),
        wrong_gradient(1),
        wrong_gradient(2),
        nan_in_a_row,
    ],
)
def test_a_kernel_that_computes_something_else_is_found(broken, small, monkeypatch):
    right = F.scaled_dot_product_attention
    wrong = lambda *heads, is_causal: broken(right(*heads, is_causal=is_causal), *heads)  # noqa: E731
    monkeypatch.setattr(F, "scaled_dot_product_attention", wrong)
    runs, helps, why = judged()
    assert (runs, helps) == ("no", "–")
    assert "computes something else than textbook attention (--model tiny, T=256: relative" in why
    assert why.endswith("try another version of torch, or run a rung below 06")
