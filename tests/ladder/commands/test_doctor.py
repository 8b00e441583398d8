"""`ladder doctor`: what this machine is, and which rungs can run or help here."""

import re
from functools import partial

import pytest
import torch
from helpers import SMALLER
from torch.nn import functional as F

from ladder.cli import MODELS, parse_args
from ladder.commands import doctor
from ladder.measure.process import run_python

CPU = torch.device("cpu")


@pytest.fixture
def small(monkeypatch):
    for model in ("gpt2", "tiny"):
        monkeypatch.setitem(MODELS, model, SMALLER)


def test_doctor_on_this_cpu(small, ladder, monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    done = ladder("doctor", "--device", "cpu")
    assert done.status == 0, done.stdout
    rungs = re.findall(r"^ \d\d .*? +(yes|no) +(yes|no|unknown|–) ", done.stdout, re.MULTILINE)
    runs, helps = zip(*rungs, strict=True)
    assert set(runs) == {"yes"} and len(runs) == len(doctor.TRIALS)
    assert helps[0] == "–" and helps[3:] == ("yes", "no")


@pytest.mark.parametrize(("half", "helps"), [(2.0, "yes"), (1.0, "no")])
def test_doctor_times_half_precision(monkeypatch, half, helps):
    rates = {torch.bfloat16: half, torch.float32: 1.0}
    monkeypatch.setattr(doctor, "matmul_flops", lambda _, dtype, n: rates[dtype])
    monkeypatch.setattr(doctor, "half_precision", lambda _: torch.bfloat16)
    assert doctor.bf16(CPU)[0] == helps


def test_doctor_finds_a_compiler_that_computes_something_else(small, monkeypatch):
    """The loss, and with it all gradients, are 1.3 times too large."""
    monkeypatch.setattr(torch, "compile", lambda model: lambda x, y: (None, model(x, y)[1] * 1.3))
    runs, helps, why = doctor.judge("05_torch_compile", CPU)
    assert (runs, helps) == ("no", "–") and "(relative error 0.3)" in why


@pytest.mark.slow
def test_doctor_without_a_compiler():
    """In a process of its own: torch looks for a compiler once."""
    env = {"CXX": "/no/such", "COLUMNS": "200"}
    done = run_python("-m", "ladder", "doctor", "--device", "cpu", **env)
    assert done.status == 1
    compiled, above = re.findall(r"^ 0[56] .* no +– +(.*?) *$", done.stdout, re.MULTILINE)
    assert "torch.compile found no working compiler" in compiled
    assert above == "the same is missing"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_right_attention_is_far_from_the_limit(dtype, monkeypatch):
    monkeypatch.setattr(doctor, "half_precision", lambda _: dtype)
    args = parse_args(None, ["--model=tiny", "--device=cpu", "--batch-size=1"])
    kernel, error = doctor.compared_attention(args)
    assert "math" not in kernel and error < 0.02


def not_causal(_, q, k, v):
    return F.softmax(q @ k.transpose(-2, -1) / q.size(-1) ** 0.5, dim=-1) @ v


def wrong_gradient(y, q, k, v):
    """Of one head of v; the output is right."""

    def spoil(grad):
        grad = grad.clone()
        grad[-1, -1] *= 0.9
        return grad

    v.register_hook(spoil)
    return y


def nan_in_a_row(y, q, *_):
    """As the gradient of q has had in cuDNN's attention."""
    q.register_hook(lambda grad: grad.index_fill(2, torch.tensor([5]), torch.nan))
    return y


@pytest.mark.parametrize("broken", [not_causal, wrong_gradient, nan_in_a_row])
def test_an_attention_that_computes_something_else_is_found(broken, small, monkeypatch):
    right = F.scaled_dot_product_attention

    def wrong(*heads, is_causal):
        return broken(right(*heads, is_causal=is_causal), *heads)

    monkeypatch.setattr(F, "scaled_dot_product_attention", wrong)
    runs, helps, why = doctor.judge("06_flash_attention", CPU)
    assert (runs, helps) == ("no", "–")
    assert "computes something else than textbook attention (--model tiny, T=256: relative" in why
    assert why.endswith("try another version of torch, or run a rung below 06")
