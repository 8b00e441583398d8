"""What a GPU makes PyTorch say, read from files: events of a step, and errors.

tests/recordings/*.cuda.json are as `ladder profile` writes them (its STEM.recording.json). Those
that say `invented` wait for a run on a GPU to replace them.
"""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.autograd import DeviceType
from torch.utils._python_dispatch import TorchDispatchMode

from ladder import probe
from ladder.cli import parse_args, pick_device
from ladder.commands.log import Log
from ladder.commands.profile import kernels
from ladder.commands.results import Row, limit_name, limit_tok_per_s
from ladder.commands.scripts import ROOT, all_scripts
from ladder.errors import BadInput, explain
from ladder.run import Run

FOLDER = Path(__file__).parent / "recordings"
CUDA = torch.device("cuda")


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
    found.pop("compile_cache", None)  # of another test in this process
    assert {**found, "attention": one_fused(found["attention"])} == expected(number)

    found = kernels(list(events(recording["events"])), CUDA)
    names = [kernel["name"] for kernel in found["kernels"]]
    assert not any(name.startswith(("aten::", "cuda", "Torch-Compiled", "##")) for name in names)
    assert ("triton_" in " ".join(names)) == (number >= 5)
    assert 0 < found["kernels_launched"] < sum(kernel["calls"] for kernel in found["kernels"])
    if sums := recording.get("expected"):
        assert found["kernels_launched"] == sums["kernels_launched"]
        assert found["self_ms"] == pytest.approx(sums["self_ms"])


def test_a_profile_without_kernels_is_an_error():
    rows = [["aten::mm", "CPU", False, 3, 0.0], ["Memset (Device)", "CUDA", False, 1, 2.0]]
    with pytest.raises(BadInput, match="recorded no kernels"):
        kernels(list(events(rows)), CUDA)


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
            rounded = ((a.view(torch.int32) + 2**12) >> 13 << 13 for a in args)
            args = [a.view(torch.float32) for a in rounded]
        return func(*args, **(kwargs or {}))


def test_tf32_is_seen_and_not_read_from_the_setting():
    assert probe.matmul_units(torch.device("cpu")) == "fp32"
    with Tf32():
        assert probe.matmul_units(torch.device("cpu")) == "tf32"
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.fixture
def no_cuda(monkeypatch):
    """A GPU that is there and does not start."""

    def fail(*_):
        raise RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable\nmore")

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for name in ("init", "get_device_properties"):
        monkeypatch.setattr(torch.cuda, name, fail)
    return fail


def test_a_gpu_that_does_not_start_is_told_in_one_line(no_cuda, monkeypatch, capsys):
    with pytest.raises(SystemExit) as caught:
        parse_args("doc", ["--device", "cuda"])
    assert caught.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert "error: --device cuda: CUDA does not start: another process has the GPU" in last

    def fail(*_):
        raise torch.cuda.DeferredCudaCallError("nobody knows this one\nnor this")

    monkeypatch.setattr(torch.cuda, "get_device_properties", fail)
    with pytest.raises(BadInput, match=r"does not start: nobody knows this one$"):
        pick_device("cuda")


@pytest.mark.parametrize("known", [True, False])
def test_a_gpu_that_does_not_start_is_in_the_log(known, no_cuda, tmp_path, monkeypatch, capsys):
    """Of a rank other than the one that read the flags, say."""
    if not known:
        monkeypatch.setattr("ladder.run.explain", lambda error: None)
    args = SimpleNamespace(device=CUDA, log_dir=tmp_path)
    with pytest.raises(SystemExit if known else RuntimeError), Run("a.py", args):
        pass
    said = "another process has the GPU" if known else "RuntimeError: CUDA error: CUDA-capable"
    (path,) = tmp_path.glob("*.log")
    assert path.read_text().startswith(f"error {said}")
    assert f"error {said}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("peak", "source"), [("9.89e+14", "the data sheet's peak"), ("unknown", "a matmul's rate here")]
)
def test_the_limit_is_named_by_its_source(peak, source):
    row = Row("baseline", {1: Log(mfu={"peak_flops": peak})})
    assert limit_name([row]) == f"all FLOPs at {source}"


def test_a_cpu_that_multiplies_fp32_faster_has_that_for_its_peak():
    """One without bfloat16 units: by its bfloat16 rate the baseline had an MFU of 138 %."""
    row = Row("baseline", {1: Log(mfu={"peak_flops": "unknown", "flops_per_token": "1000"})})
    assert limit_tok_per_s({"peak_flops": 4e10, "fp32_flops": 1.4e11}, [row]) == 1.4e8
    assert limit_tok_per_s({"peak_flops": 4e11, "fp32_flops": 1.4e11}, [row]) == 4e8
    assert limit_tok_per_s({"peak_flops": 4e10}, [row]) == 4e7  # older climbs
    assert limit_tok_per_s({"peak_flops": None}, [row]) is None
