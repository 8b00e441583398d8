"""The losses of a script are to those of the one before it as its note declares."""

import functools
from pathlib import Path

import pytest
import torch
from helpers import SMALL, load, random_batch, relative_error, rung
from models import SAME_MODEL, enlarged, losses_of, uncompiled

from ladder import machine
from ladder.checkout import ROOT
from ladder.cli import MODELS
from ladder.log import read_log
from ladder.measure.effective import differences
from ladder.measure.notes import describe
from ladder.measure.scripts import all_scripts, base_of, number_of, rungs_for

RUNGS = [number_of(path) for path in rungs_for("cpu")]
STEPS = 16
ROUNDING = 2e-3  # nats: four times what bfloat16 moves a loss here, a quarter of what clipping does


@pytest.fixture(scope="module")
def log_of(shard, tmp_path_factory):
    """log_of(script, compiled): its log in bfloat16; each runs once. One wide layer compiles
    quickly, and clipping shows in its losses."""

    @functools.cache
    def run(script: Path, compiled: bool):
        folder = tmp_path_factory.mktemp("logs")
        flags = [*SMALL, "--steps", STEPS, "--data", shard, "--log-dir", folder]
        torch._dynamo.reset()
        wide = dict(n_layer=1, n_head=8, n_embd=256, vocab_size=320)
        if number_of(script) >= 7:
            wide["vocab_size"] = 384
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(MODELS, "tiny", wide)
            patch.setattr(machine, "half_precision", lambda _: torch.bfloat16)
            if not compiled:
                patch.setattr(torch, "compile", uncompiled)
            load(script).main(list(map(str, flags)))
        torch.set_float32_matmul_precision("highest")
        return read_log(next(folder.glob("*.log")))

    return run


EAGER = [(script, False) for script in all_scripts()[1:]]
COMPILED = [pytest.param(script, True, marks=pytest.mark.slow) for script in rungs_for("cpu")[6:]]


@pytest.mark.parametrize(
    ("script", "compiled"), EAGER + COMPILED, ids=lambda value: getattr(value, "stem", value)
)
def test_numerics_are_as_declared(script, compiled, log_of):
    """The losses of a script are to those of the one before it as its note declares."""
    declared = describe(script)["Numerics"]
    old = losses_of(log_of(base_of(script), compiled))
    new = losses_of(log_of(script, compiled or script == rung(5)))
    because = f"the note of {script.stem} says: Numerics. {declared}"
    if declared.startswith("identical"):
        assert new == old, because
    elif declared.startswith("rounding"):
        assert new == pytest.approx(old, abs=ROUNDING), because
    else:
        assert declared.startswith("changes the function")
        assert len(new) == len(old) and new != pytest.approx(old, abs=ROUNDING), because


GOLDEN = {
    "baseline.py": [10.846236, 10.695444, 10.49678],
    "speedups/10_fused_adamw.py": [10.781331, 10.575006, 10.356637],
}


@pytest.mark.parametrize("script", GOLDEN)
def test_the_first_losses_are_those_that_were_recorded(script, tmp_path, monkeypatch):
    """In FP32, uncompiled, on the text that is here: neighbours alone would not show a change that
    all scripts share. One that is meant to change them records them again."""
    monkeypatch.setattr(machine, "half_precision", lambda _: torch.float32)
    monkeypatch.setattr(torch, "compile", uncompiled)
    load(ROOT / script).main([*SMALL, "--steps=3", f"--log-dir={tmp_path}"])
    found = losses_of(read_log(next(tmp_path.glob("*.log"))))
    assert found == pytest.approx(GOLDEN[script], abs=1e-4)


SLOW = [pytest.param(number, marks=pytest.mark.slow) for number in RUNGS[6:]]


@pytest.mark.parametrize("number", [*range(6), *SLOW])
def test_a_step_runs_what_the_rungs_declare(number, log_of):
    """What a rung gained is still there in every later one."""
    log = log_of(rung(number), number >= 5)
    assert differences([log]) == [] and "unknown" not in log.effective.values()


def gradients(number):
    """Those of all parameters on one batch, by name."""
    model = enlarged(number, vocab_size=320)
    loss = model(*random_batch(T=200, V=320))
    loss.backward()
    return {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize("number", SAME_MODEL)
def test_gradients_above_ten_are_those_of_the_baseline(number, monkeypatch):
    """In FP32. Losses of a few steps show little of a wrong gradient."""
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda _: torch.float32)
    found = gradients(number)
    for name, exact in gradients(0).items():
        error = relative_error(found[name], exact)
        assert error < 1e-4, f"the gradient of {name} is not the baseline's"
