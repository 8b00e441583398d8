"""probe.py: what a step really ran.

tests/recordings/*.cuda.json have the operators and the events of a profiled step. Those that say
`invented` were written from PyTorch's sources.
"""

import json
from types import SimpleNamespace

import pytest
import torch
from helpers import load, rung
from models import expected_on_cuda, one_fused
from torch.autograd import DeviceType

from ladder import probe
from ladder.commands.profile import kernels
from ladder.files import ROOT
from ladder.measure.scripts import rungs_for

FOLDER = ROOT / "tests" / "recordings"
CUDA = torch.device("cuda", 0)


def events(rows):
    """One profiler event for each call that a recording counts."""
    for name, device, note, calls, us in rows:
        times = dict(self_device_time_total=us / calls, self_cpu_time_total=0)
        kind = dict(device_type=getattr(DeviceType, device), is_user_annotation=note)
        yield from [SimpleNamespace(name=name, **times, **kind)] * calls


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.cuda.json")), ids=lambda path: path.stem)
def test_a_step_on_a_gpu_is_read_as_what_it_is(path):
    recording = json.loads(path.read_text())
    number = rungs_for("cpu").index(ROOT / recording["run"]["script"])
    found = probe.effective(recording["operators"])
    assert {**found, "attention": one_fused(found["attention"])} == expected_on_cuda(number)

    found = kernels(list(events(recording["events"])), CUDA)
    names = [kernel["name"] for kernel in found["kernels"]]
    for name in names:
        assert not name.startswith(("aten::", "cuda", "Torch-Compiled", "##"))
    assert ("triton_" in " ".join(names)) == (number >= 5)
    assert 0 < found["kernels_launched"] < sum(kernel["calls"] for kernel in found["kernels"])
    for key, value in recording.get("expected", {}).items():
        assert found[key] == pytest.approx(value)


class AnotherProfile(torch.profiler.profile):
    """That of a PyTorch without one of the private names that `probe` uses."""

    without = None

    def __init__(self, activities, **settings):
        names_operators = isinstance(activities[0], dict)
        if self.without == "activities" and names_operators:
            raise ValueError("not an activity")
        super().__init__(activities=activities, **settings)

    def stop(self):
        super().stop()
        if self.without == "kineto_results":
            del self.profiler.kineto_results


@pytest.mark.parametrize("name", ["activities", "kineto_results"])
def test_a_pytorch_without_a_private_name_costs_the_effective_line_alone(
    name, run_main, monkeypatch
):
    monkeypatch.setattr(AnotherProfile, "without", name)
    monkeypatch.setattr(probe, "profile", AnotherProfile)
    log = run_main(load(rung(0)), "--steps", 3)
    assert log.result["status"] == "ok" and log.effective["matmul"] == "fp32"
    told = name == "activities"
    assert log.effective["attention"] == ("math" if told else "unknown")
    assert ("does not tell what a step ran" in " ".join(log.notes)) != told


def test_tf32_is_seen_and_not_read_from_the_setting(monkeypatch):
    def in_10_bits(a, b):  # as TF32 units, and float16, which has as many
        return torch.mm(a.half().float(), b.half().float())

    assert probe.matmul_units(torch.device("cpu")) == "fp32"
    monkeypatch.setattr(torch.Tensor, "__matmul__", in_10_bits)
    assert probe.matmul_units(torch.device("cpu")) == "tf32"
    assert torch.get_float32_matmul_precision() == "highest"
