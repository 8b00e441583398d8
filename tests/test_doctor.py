"""ladder doctor: what this machine is, and which rungs can run or help here."""

import os
import re
from functools import partial

import pytest
import torch
from conftest import SMALLER
from torch.nn import functional as F

from ladder.cli import MODELS
from ladder.commands import doctor
from ladder.commands.main import main
from ladder.measure.process import Finished, run_python
from ladder.measure.scripts import all_scripts

CPU = torch.device("cpu")
PURPOSE_OF_10 = "the optimizer updates all parameters in one fused kernel"


@pytest.fixture
def ladder(monkeypatch, capsys):
    """ladder(words…): exit status, stdout and stderr of the command, run in this process."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")  # doctor sets it: put back afterwards

    def run(*words):
        status = main([str(word) for word in words])
        return Finished(*capsys.readouterr(), status, failure=None)

    return run


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
    assert len(found) == len(all_scripts())
    return found


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_doctor_on_this_cpu(compiled, ladder, monkeypatch, request):
    if not compiled:
        request.getfixturevalue("small")
        monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    monkeypatch.setattr(doctor, "load", lambda: 1e3)
    done = ladder("doctor", "--device", "cpu")
    assert done.status == 0, done.stdout
    machine, note, *_ = done.stdout.splitlines()
    assert f", torch {torch.__version__}, Python 3." in machine
    assert note.startswith("note  load 1000.0 on ")
    runs, helps, why = zip(*rungs(done), strict=True)
    assert set(runs) == {"yes"}
    assert helps[5:7] == ("yes", "no") and helps[1] == helps[10] == "–"
    assert why[6].startswith("the flash kernel runs, but at T=256 slower")


def test_doctor_names_the_attention_that_ran_and_not_one_it_asked_for(monkeypatch):
    attend = F.scaled_dot_product_attention

    def without_kernel(*args, **how):
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return attend(*args, **how)

    monkeypatch.setattr(F, "scaled_dot_product_attention", without_kernel)
    assert doctor.judge("06_flash_attention", CPU)[1:][0] == "no"


def test_doctor_says_what_a_rung_that_needs_nothing_is_for():
    said = {}
    for path in all_scripts():
        if path.stem not in doctor.TRIALS:
            said[path.stem[:2]] = doctor.purpose(path, CPU)
    assert said["10"] == ("–", f"for speed: {PURPOSE_OF_10}")
    assert said["12"][1].startswith("for speed: on a CPU, attention takes 128 queries at a time")
    not_for_speed = [number for number, (helps, _) in said.items() if helps == "no"]
    assert not_for_speed == ["04", "08", "09"]
    helps, why = doctor.purpose(all_scripts()[-1], torch.device("cuda"))
    assert helps == "no" and why.startswith("for CPUs: ")


@pytest.mark.parametrize(
    ("half", "helps", "why"),
    [
        (2.0, "yes", "a bfloat16 matmul is faster than one in FP32 (timed)"),
        (1.0, "no", "a bfloat16 matmul is no faster than one in FP32 (timed)"),
        (0.7, "no", "a bfloat16 matmul is slower than one in FP32 (timed)"),
        (0.2, "slows", "a bfloat16 matmul is slower than one in FP32 (timed)"),
    ],
)
def test_doctor_times_half_precision(monkeypatch, half, helps, why):
    rates = {torch.bfloat16: half, torch.float32: 1.0}
    monkeypatch.setattr(doctor, "matmul_flops", lambda _, dtype, n: rates[dtype])
    monkeypatch.setattr(doctor, "half_precision", lambda _: torch.bfloat16)
    assert doctor.bf16(CPU) == (helps, why)


@pytest.mark.parametrize("slows", [True, False])
def test_doctor_says_that_the_ladder_goes_down(ladder, monkeypatch, slows):
    helps = doctor.SLOWS if slows else "no"
    monkeypatch.setattr(doctor, "TRIALS", {"03_bf16_autocast": lambda _: (helps, "timed")})
    done = ladder("doctor", "--device", "cpu")
    verdict = "\n03 bf16 autocast makes this machine slower: the top rung will be slower than the "
    assert done.status == 0 and (verdict in done.stdout) == slows


def test_without_half_precision_units_rung_03_is_rung_02(monkeypatch):
    monkeypatch.setattr(doctor, "half_precision", lambda _: torch.float32)
    assert doctor.bf16(CPU)[0] == "no"


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
    assert found[4][0] == "yes" and found[5][0] == "no"
    assert "torch.compile found no working compiler" in found[5][2]
    assert found[6] == ["no", "–", "the same is missing"]
    unseen = "note  there is an NVIDIA driver (599.01), but this torch sees no GPU\n"
    assert (unseen in done.stdout) != torch.cuda.is_available()


@pytest.mark.cuda
def test_doctor_on_cuda(ladder):
    done = ladder("doctor", "--device", "cuda")
    assert rungs(done)[2][0] == "yes"
    assert done.status == (rungs(done)[-1][0] == "no")
