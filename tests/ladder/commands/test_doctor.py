"""`ladder doctor`: which rungs run here, and which can help."""

import math
import re

import pytest
from models import expected_on_cuda

from ladder.commands import doctor
from ladder.commands.main import main
from ladder.log import Log, Step
from ladder.measure.scripts import number_of, relative_name


@pytest.fixture
def judged(monkeypatch, capsys):
    """judged(**told): exit status and the words of each rung, by its number, on a CPU where all
    rungs run as declared, but for what is `told` of rung 5: its losses and its `effective`."""

    def run(loss=9.0, **told):
        def three_steps(path, device, folder):
            number = number_of(path)
            effective = expected_on_cuda(number) | {"matmul": "fp32"}
            if effective["attention"] == "fused":
                effective["attention"] = "flash"
            if number >= 5:
                effective |= told
            steps = [Step(1, loss if number == 5 else 9.0, dt_ms=1, tok_per_s=1)]
            run = {"script": relative_name(path), "device": "AMD EPYC"}
            return Log(run=run, effective=effective, steps=steps)

        monkeypatch.setattr(doctor, "three_steps", three_steps)
        monkeypatch.setenv("COLUMNS", "200")
        status = main(["doctor", "--device", "cpu"])
        line = r"^\d\d .*? (yes|no|–|unknown|cannot run) *(.*)$"
        return status, re.findall(line, capsys.readouterr().out, re.M)

    return run


def test_a_rung_helps_if_it_changed_what_it_declares(judged):
    status, rungs = judged()
    assert status == 0 and len(rungs) == 13
    assert rungs[2] == ("no", "matmul=fp32 as before: this device has no units for it")
    assert rungs[5] == ("yes", "removes round trips through memory between kernels")
    assert rungs[6][0] == "no"  # as README.md says
    assert rungs[9] == ("–", "for the loss")
    why = "it ran compiled=no, not yes"
    assert judged(compiled="no")[1][5] == ("no", why)


@pytest.mark.parametrize("loss", [9.03, math.nan])
def test_a_compiler_that_computes_something_else_is_found(judged, loss):
    status, rungs = judged(loss)
    assert status == 1 and len(rungs) == 6
    assert rungs[5][0] == "cannot run"
    assert "of step 1 is not that of 04 residual scaling" in rungs[5][1]
