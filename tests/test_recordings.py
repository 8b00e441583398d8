"""What a GPU makes PyTorch say, read from files: events of a step, and errors.

tests/recordings/*.cuda.json have the operators and the events of a profiled step. Those that say
`invented` were written from PyTorch's sources.
"""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.autograd import DeviceType
from torch.utils._python_dispatch import TorchDispatchMode

from ladder import probe
from ladder.cli import parse_args
from ladder.commands.profile import kernels
from ladder.errors import explain
from ladder.measure.scripts import ROOT, all_scripts

FOLDER = Path(__file__).parent / "recordings"
CUDA = torch.device("cuda", 0)


def expected(number: int) -> dict[str, str]:
    """What the `effective` line of a rung says on CUDA, but for `matmul` and the compile cache."""
    return {
        "autocast": "bfloat16" if number >= 3 else "off",
        "compiled": "yes" if number >= 5 else "no",
        "attention": "fused" if number >= 6 else "math",
        "optimizer": "fused" if number >= 10 else "foreach",
    }


def one_fused(attention: str) -> str:
    """`fused` for any of the kernels that SDPA may choose on CUDA, else the word itself."""
    return "fused" if attention in ("flash", "cudnn", "efficient") else attention


def events(rows):
    """One profiler event for each call that a recording counts."""
    for name, device, note, calls, us in rows:
        times = dict(self_device_time_total=us / calls, self_cpu_time_total=0)
        kind = dict(device_type=getattr(DeviceType, device), is_user_annotation=note)
        yield from [SimpleNamespace(name=name, **times, **kind)] * calls


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.cuda.json")), ids=lambda path: path.stem)
def test_a_step_on_a_gpu_is_read_as_what_it_is(path):
    recording = json.loads(path.read_text())
    number = all_scripts().index(ROOT / recording["run"]["script"])
    found = probe.effective(recording["operators"])
    assert {**found, "attention": one_fused(found["attention"])} == expected(number)

    found = kernels(list(events(recording["events"])), CUDA)
    names = [kernel["name"] for kernel in found["kernels"]]
    for name in names:
        assert not name.startswith(("aten::", "cuda", "Torch-Compiled", "##"))
    assert ("triton_" in " ".join(names)) == (number >= 5)
    assert 0 < found["kernels_launched"] < sum(kernel["calls"] for kernel in found["kernels"])
    for key, value in recording.get("expected", {}).items():
        assert found[key] == pytest.approx(value)


@pytest.mark.parametrize("case", json.loads((FOLDER / "errors.json").read_text()))
def test_an_error_that_a_user_can_put_right_is_explained(case):
    error = type(case["class"], (RuntimeError,), {})(case["text"])
    wrapped = RuntimeError("backend='inductor' raised:")  # as torch.compile does
    wrapped.__cause__ = error
    for raised in (error, wrapped):
        line = explain(raised)
        if case["said"]:
            assert line.startswith(case["said"]) and "\n" not in line
        else:
            assert line is None


class Tf32(TorchDispatchMode):
    """Rounds what a matmul multiplies to 10 bits, as TF32 units do."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.mm.default:
            rounded = []
            for a in args:
                bits = (a.view(torch.int32) + 2**12) >> 13 << 13
                rounded.append(bits.view(torch.float32))
            args = rounded
        return func(*args, **(kwargs or {}))


def test_tf32_is_seen_and_not_read_from_the_setting():
    assert probe.matmul_units(torch.device("cpu")) == "fp32"
    with Tf32():
        assert probe.matmul_units(torch.device("cpu")) == "tf32"
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_gpu_that_does_not_start_is_told_in_one_line(monkeypatch, capsys):
    def fail(*_):
        raise RuntimeError("CUDA error: out of memory\nmore")

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", fail)
    with pytest.raises(SystemExit, match="2"):
        parse_args("doc", ["--device", "cuda"])
    (line,) = capsys.readouterr().err.splitlines()
    assert "error out of memory: try" in line
