"""`ladder profile`, run as a user runs it: stages, kernels, trace, and what it refuses."""

import io
import json
import time
from types import SimpleNamespace

import pytest
import torch
from conftest import SMALL, rung
from rich.console import Console
from torch.autograd import DeviceType

from ladder import probe
from ladder.commands import main
from ladder.commands.log import read_log
from ladder.commands.profile import (
    PROFILED_STEPS,
    STAGES,
    WARMUP_STEPS,
    kernels,
    middle,
    report,
    short,
    timed_stages,
)

STEPS = 3


@pytest.fixture
def profile(shard, tmp_path, capsys):
    """profile(rungs…): what `ladder profile` printed, and the numbers of each rung, checked."""

    def run(*rungs):
        folder = tmp_path / "out"
        flags = [*SMALL, "--steps", STEPS, "--data", shard, "--out", folder]
        assert main([str(word) for word in ("profile", *rungs, *flags)]) == 0
        return capsys.readouterr().out, [read(path) for path in sorted(folder.glob("*.log"))]

    return run


def read(path):
    """The numbers beside a script's log, after checks that hold for every profile."""
    stem, log = path.name.partition("-")[0], read_log(path)
    found = json.loads((path.parent / f"{stem}.json").read_text())
    assert int(log.run["steps"]) == WARMUP_STEPS + 2 * STEPS + PROFILED_STEPS
    assert found["run"] == log.run

    # The stages of a step sum to what the script logged for it; steps left alone cost the same.
    timed = [step["dt"] * 1e3 for step in log.steps[WARMUP_STEPS:-PROFILED_STEPS]]
    times = found["times_ms"]
    assert times["step"] == pytest.approx(timed[::2], abs=0.01)
    sums = [sum(stages) for stages in zip(*(times[stage] for stage in STAGES), strict=True)]
    assert sums == pytest.approx(timed[1::2], abs=0.01)
    assert all(ms > 0 for stage in STAGES for ms in times[stage])
    total = sum(found["median_ms"][stage] for stage in STAGES)
    assert 1 / 5 < total / found["median_ms"]["step"] < 5  # however busy

    # The shares are parts of one whole, longest first, and the trace has every kernel by name.
    trace = json.loads((path.parent / f"{stem}.trace.json").read_text())
    traced = {event["name"] for event in trace["traceEvents"]}
    assert {kernel["name"] for kernel in found["kernels"]} <= traced

    # What is recorded for tests/recordings/ gives the same again.
    recording = json.loads((path.parent / f"{stem}.recording.json").read_text())
    ran = probe.effective(recording["operators"])
    for key in ("autocast", "compiled", "attention", "optimizer"):
        assert ran[key] == log.effective[key]
    assert {kernel["name"] for kernel in found["kernels"]} <= {
        row[0] for row in recording["events"]
    }

    milliseconds = [kernel["ms"] for kernel in found["kernels"]]
    assert milliseconds == sorted(milliseconds, reverse=True) and len(milliseconds) > 10
    assert sum(milliseconds) == pytest.approx(found["self_ms"])
    shares = [kernel["share"] * found["self_ms"] for kernel in found["kernels"]]
    assert shares == pytest.approx(milliseconds)
    assert 0 < found["kernels_launched"] <= sum(kernel["calls"] for kernel in found["kernels"])
    return found


def test_eager_script_with_a_known_delay_in_two_stages(profile, tmp_path):
    source = rung(0).read_text()
    for line, pause in (("loss.backward()", 0.1), ("optimizer.step()", 0.2)):
        assert source.count(f"{line}\n") == 1
        source = source.replace(f"{line}\n", f"time.sleep({pause}); {line}\n")
    script = tmp_path / "slowed.py"
    script.write_text(source)
    printed, (found,) = profile(script)
    assert min(found["times_ms"]["forward"]) > 100
    assert min(found["times_ms"]["optimizer"]) > 200
    names = {kernel["name"]: kernel for kernel in found["kernels"]}
    assert names["aten::addmm"]["calls"] == 4 * 4  # layers, each with four matrices and biases
    assert f"{found['median_ms']['backward']:.2f}" in printed
    assert f"{found['kernels'][0]['share']:.1%}" in printed and "aten::mm" in printed
    assert f"trace: {tmp_path / 'out' / 'slowed.trace.json'}\n" in printed


@pytest.mark.slow
def test_two_compiled_rungs_side_by_side_show_what_changed(profile):
    printed, (before, after) = profile(9, 10)
    before_names, after_names = ({k["name"] for k in p["kernels"]} for p in (before, after))
    assert "aten::_fused_adamw_" in after_names - before_names
    assert "aten::addcdiv_" in before_names - after_names
    assert after["kernels_launched"] < before["kernels_launched"]
    change = after["median_ms"]["optimizer"] - before["median_ms"]["optimizer"]
    assert "difference" in printed and f"{change:+.2f}" in printed
    for names in (before_names, after_names):  # what torch.compile generated shows itself
        assert any("cpp_fused" in name and "layer_norm" in name for name in names)


def test_every_backward_of_a_step_is_timed_and_the_real_one_put_back():
    original, loss = torch.Tensor.backward, torch.zeros((), requires_grad=True)
    with timed_stages(torch.device("cpu")) as spent:
        for _ in range(2):
            time.sleep(0.05)
            loss.backward()
        time.sleep(0.2)
    assert 100 <= spent["forward"] < 200 and 0 < spent["backward"] < 200
    assert torch.Tensor.backward is original


def event(name, kind=DeviceType.CPU, us=0, parent=None, note=False):
    times = dict(self_cpu_time_total=us, self_device_time_total=us)
    links = dict(device_type=kind, cpu_parent=parent, is_user_annotation=note)
    return SimpleNamespace(name=name, **times, **links)


def test_on_cuda_only_what_ran_on_the_gpu_counts():
    gpu = DeviceType.CUDA
    events = [
        event("aten::mm", us=900),
        event("Optimizer.step#AdamW.step", gpu, 5000, note=True),
        event("gemm", gpu, 600),
        event("gemm", gpu, 200),
        event("Memcpy HtoD (Pageable -> Device)", gpu, 200),
    ]
    found = kernels(events, torch.device("cuda"))
    assert found["kernels_launched"] == 2 and found["self_ms"] == 1
    assert found["kernels"][0] == {"name": "gemm", "calls": 2, "ms": 0.8}


def test_on_a_cpu_a_kernel_is_an_operator_that_calls_no_other_one():
    linear = event("aten::linear")
    addmm = event("aten::addmm", us=5, parent=linear)
    inside = [event("aten::t", parent=linear), event("aten::as_strided", us=1, parent=addmm)]
    around = [event("Torch-Compiled Region: 0/0"), event("autograd::engine::evaluate_function: X")]
    generated = event("graph_0_cpp_fused_add_1", us=4, parent=around[0])
    found = kernels([linear, addmm, *inside, *around, generated], torch.device("cpu"))
    assert found["kernels_launched"] == 2  # addmm and the generated one


def test_a_kernel_that_a_busy_machine_slowed_in_one_step_has_its_median():
    def step(**ms):
        found = [{"name": n, "calls": 1, "ms": one} for n, one in ms.items()]
        return {"kernels_launched": 2, "self_ms": sum(ms.values()), "kernels": found}

    steps = [step(mm=27, gelu=10), step(mm=28, gelu=12), step(mm=316, gelu=11)]
    found = middle(steps)
    assert [(k["name"], k["ms"], k["range_ms"]) for k in found["kernels"]] == [
        ("mm", 28, [27, 316]),
        ("gelu", 11, [10, 12]),
    ]
    assert found["self_ms"] == 39 and found["kernels"][0]["share"] == pytest.approx(28 / 39)
    runs = {"script": "a.py", "device": "CPU", "model": "tiny", "B": 1, "T": 1}
    medians = dict.fromkeys((*STAGES, "step"), 1.0)
    console = Console(file=io.StringIO(), width=100)
    report([{"run": runs, "median_ms": medians, "times_ms": {"step": [1]}, **found}], console)
    assert "a: from step to step these took, in ms: mm 27.0 to 316.0\n" in console.file.getvalue()


def test_a_short_name_keeps_the_end_that_tells_it_apart():
    name = "graph_0_cpp_fused_add_native_layer_norm_native_layer_norm_backward_view_"
    assert short(name + "7", 24) == "cpp_fused_add…ard_view_7"
    assert short(name + "7", 24) != short(name + "8", 24)
    assert short("void at::native::(anonymous namespace)::gelu<4>", 24) == "gelu<4>"


def test_why_a_script_fails_is_told_in_one_line(tmp_path, capsys):
    script = tmp_path / "broken.py"
    script.write_text('raise ValueError("my mistake")\n')
    assert main(["profile", str(script), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == "error broken.py failed: ValueError: my mistake\n"


def test_two_scripts_of_which_one_would_overwrite_what_the_other_leaves(tmp_path, capsys):
    scripts = [tmp_path / name for name in ("x.trace.py", "x.py")]
    for path in scripts:
        path.write_text("1 / 0")
    assert main([*map(str, ("profile", *scripts, "--out", tmp_path / "out"))]) == 2
    assert "two of different names" in capsys.readouterr().err and not (tmp_path / "out").exists()
