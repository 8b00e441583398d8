"""`ladder doctor`: what this machine is, and which rungs can run or help here."""

import os
import re
from functools import partial

import pytest
import torch
from helpers import SMALLER

from ladder.cli import MODELS
from ladder.commands import doctor
from ladder.measure.process import run_python

CPU = torch.device("cpu")


@pytest.fixture
def small(ladder, monkeypatch):
    for model in ("gpt2", "tiny"):
        monkeypatch.setitem(MODELS, model, SMALLER)


def rungs(done):
    """The cells of every rung, in order."""
    found = []
    for line in done.stdout.splitlines():
        if re.match(r"│ \d\d ", line):
            _, *cells = re.split(" *│ *", line.strip(" │"))
            found.append(cells)
    assert len(found) == len(doctor.TRIALS)
    return found


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_doctor_on_this_cpu(compiled, ladder, monkeypatch, request):
    if not compiled:
        request.getfixturevalue("small")
        monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    done = ladder("doctor", "--device", "cpu")
    assert done.status == 0, done.stdout
    runs, helps, _ = zip(*rungs(done), strict=True)
    assert set(runs) == {"yes"}
    assert helps[0] == "–" and helps[3:] == ("yes", "no")


@pytest.mark.parametrize(
    ("half", "helps"),
    [
        (2.0, "yes"),
        (1.0, "no"),
        (0.7, "no"),
    ],
)
def test_doctor_times_half_precision(monkeypatch, half, helps):
    rates = {torch.bfloat16: half, torch.float32: 1.0}
    monkeypatch.setattr(doctor, "matmul_flops", lambda _, dtype, n: rates[dtype])
    monkeypatch.setattr(doctor, "half_precision", lambda _: torch.bfloat16)
    assert doctor.bf16(CPU)[0] == helps


def broken_loss(model):
    """As a compiler that makes the loss, and with it all gradients, 1.3 times too large."""
    return lambda x, y: (None, model(x, y)[1] * 1.3)


def broken_gradient(model):
    """As a compiler whose LayerNorm has a NaN in its backward, and a right loss."""
    model.transformer.ln_f.bias.register_hook(lambda grad: grad * torch.nan)
    return model


@pytest.mark.parametrize(("broken", "error"), [(broken_loss, "0.3"), (broken_gradient, "nan")])
def test_doctor_finds_a_compiler_that_computes_something_else(small, monkeypatch, broken, error):
    monkeypatch.setattr(torch, "compile", broken)
    runs, helps, why = doctor.judge("05_torch_compile", CPU)
    assert (runs, helps) == ("no", "–") and f"(relative error {error})" in why
    assert "CXX=clang++" in why


@pytest.mark.slow
def test_doctor_without_a_compiler_and_with_a_driver(tmp_path):
    """In a process of its own: torch looks for a compiler once."""
    driver = tmp_path / "nvidia-smi"
    driver.write_text("#!/bin/sh\necho 599.01\n")
    driver.chmod(0o755)
    env = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "CXX": "/no/such"}
    done = run_python("-m", "ladder", "doctor", "--device", "cpu", COLUMNS="200", **env)
    assert done.status == 1
    found = rungs(done)
    assert found[2][0] == "yes" and found[3][0] == "no"
    assert "torch.compile found no working compiler" in found[3][2]
    assert found[4] == ["no", "–", "the same is missing"]
    unseen = "note  there is an NVIDIA driver (599.01), but this torch sees no GPU\n"
    assert (unseen in done.stdout) != torch.cuda.is_available()


@pytest.mark.cuda
def test_doctor_on_cuda(ladder):
    done = ladder("doctor", "--device", "cuda")
    assert rungs(done)[1][0] == "yes"
    assert done.status == (rungs(done)[-1][0] == "no")
