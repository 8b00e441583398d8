"""`ladder profile`: stages, kernels, trace, and what it refuses."""

import json

import numpy as np
import pytest
from helpers import ON_CUDA, SMALL, SMALLER, run_script, rung

from ladder.commands.main import main
from ladder.commands.profile import PROFILED_STEPS, STAGES, WARMUP_STEPS
from ladder.log import read_log

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
    log = read_log(path)
    stem = path.name.partition("-")[0]
    found = json.loads((path.parent / f"{stem}.json").read_text())
    assert int(log.run["steps"]) == WARMUP_STEPS + 2 * STEPS + PROFILED_STEPS

    # The stages of a step sum to what the script logged for it.
    timed = [step["dt"] * 1e3 for step in log.steps[WARMUP_STEPS:-PROFILED_STEPS]]
    times = found["times_ms"]
    assert times["step"] == pytest.approx(timed[::2], abs=0.01)
    sums = np.sum([times[stage] for stage in STAGES], axis=0)
    assert list(sums) == pytest.approx(timed[1::2], abs=0.01)

    # Kernels are parts of one whole, longest first; the trace has each by its name.
    ms = [kernel["ms"] for kernel in found["kernels"]]
    assert ms == sorted(ms, reverse=True)
    assert sum(ms) == pytest.approx(found["self_ms"])
    trace = json.loads((path.parent / f"{stem}.trace.json").read_text())
    in_trace = {event["name"] for event in trace["traceEvents"]}
    for kernel in found["kernels"]:
        assert kernel["share"] == pytest.approx(kernel["ms"] / found["self_ms"])
        assert kernel["name"] in in_trace
    return found


def test_a_script_with_a_known_delay_in_two_stages(profile, tmp_path):
    source = rung(0).read_text()
    for right, wrong in (
        ("**MODELS[args.model]", f"**{SMALLER}"),
        ("loss.backward()\n", "time.sleep(0.1); loss.backward()\n"),
        ("optimizer.step()\n", "time.sleep(0.2); optimizer.step()\n"),
    ):
        assert source.count(right) == 1
        source = source.replace(right, wrong)
    script = tmp_path / "slowed.py"
    script.write_text(source)
    printed, (found,) = profile(script)
    assert min(found["times_ms"]["forward"]) > 100
    assert min(found["times_ms"]["optimizer"]) > 200
    calls = {kernel["name"]: kernel["calls"] for kernel in found["kernels"]}
    assert calls["aten::addmm"] == 2 * 4  # layers, each with four matrices and biases
    assert f"{found['median_ms']['backward']:.2f}" in printed
    assert f"{found['kernels'][0]['share']:.1%}" in printed and "aten::mm" in printed


@pytest.mark.slow
def test_two_compiled_rungs_side_by_side_show_what_changed(profile):
    printed, (before, after) = profile(9, 10)
    old = {kernel["name"] for kernel in before["kernels"]}
    new = {kernel["name"] for kernel in after["kernels"]}
    assert "aten::_fused_adamw_" in new - old
    assert "aten::addcdiv_" in old - new
    change = after["median_ms"]["optimizer"] - before["median_ms"]["optimizer"]
    assert f"{change:+.2f}" in printed
    # What torch.compile generated shows itself.
    assert any("cpp_fused" in name and "layer_norm" in name for name in new)


def test_why_a_script_fails_is_told_in_one_line(tmp_path, capsys):
    script = tmp_path / "broken.py"
    script.write_text('raise ValueError("my mistake")\n')
    assert main(["profile", str(script), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == "error broken.py failed: ValueError: my mistake\n"


@pytest.mark.cuda
def test_profile_sees_the_kernels_of_the_gpu(shard, tmp_path):
    words = ["--steps", 3, "--data", shard, "--out", tmp_path / "out"]
    done = run_script("-m", "ladder", "profile", 9, 10, *ON_CUDA, *words)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out" / "10_fused_adamw.json").read_text())
    names = " ".join(kernel["name"] for kernel in found["kernels"])
    assert "triton_" in names and "aten::" not in names
    assert found["self_ms"] > 0 and min(found["median_ms"].values()) > 0
