"""probe.py: what a step really ran.

tests/recordings/*.cuda.json have the operators of a step. Those that say `invented` were written
from PyTorch's sources.
"""

import json

import pytest
import torch
from helpers import load, rung
from models import expected_on_cuda, one_fused

from ladder import probe
from ladder.files import ROOT
from ladder.measure.scripts import rungs_for

FOLDER = ROOT / "tests" / "recordings"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.cuda.json")), ids=lambda path: path.stem)
def test_a_step_on_a_gpu_is_read_as_what_it_is(path):
    recording = json.loads(path.read_text())
    number = rungs_for("cpu").index(ROOT / recording["run"]["script"])
    found = probe.effective(recording["operators"])
    assert {**found, "attention": one_fused(found["attention"])} == expected_on_cuda(number)


class WithoutActivities(torch.profiler.profile):
    """That of a PyTorch that takes no names of what to record."""

    def __init__(self, activities, **settings):
        if isinstance(activities[0], dict):
            raise ValueError("not an activity")
        super().__init__(activities=activities, **settings)


class WithoutResults(torch.profiler.profile):
    """That of a PyTorch that does not tell what it recorded."""

    def stop(self):
        super().stop()
        del self.profiler.kineto_results


@pytest.mark.parametrize(
    ("profile", "attention"), [(WithoutActivities, "math"), (WithoutResults, "unknown")]
)
def test_a_pytorch_without_a_private_name_costs_the_effective_line_alone(
    profile, attention, run_main, monkeypatch
):
    monkeypatch.setattr(probe, "profile", profile)
    log = run_main(load(rung(0)), "--steps", 3)
    assert log.result["status"] == "ok" and log.effective["matmul"] == "fp32"
    assert log.effective["attention"] == attention


def test_tf32_is_seen_and_not_read_from_the_setting(monkeypatch):
    def in_10_bits(a, b):  # as TF32 units, and float16, which has as many
        return torch.mm(a.half().float(), b.half().float())

    assert probe.matmul_units(torch.device("cpu")) == "fp32"
    monkeypatch.setattr(torch.Tensor, "__matmul__", in_10_bits)
    assert probe.matmul_units(torch.device("cpu")) == "tf32"
    assert torch.get_float32_matmul_precision() == "highest"
