"""`ladder profile`: stages, kernels, trace, and what it refuses."""

import json

import numpy as np
import pytest
from helpers import ON_CUDA, SMALL, SMALLER, run_script, rung

from ladder.commands.main import main
from ladder.commands.profile import summary
from ladder.log import read_log
from ladder.measure.stages import STAGES, WARMUP_STEPS, touched


def test_a_script_with_a_known_delay_in_two_stages(shard, tmp_path, capsys):
    source = rung(0).read_text()
    source = source.replace("**MODELS[args.model]", f"**{SMALLER}")
    source = source.replace("loss.backward()\n", "time.sleep(0.1); loss.backward()\n")
    source = source.replace("optimizer.step()\n", "time.sleep(0.2); optimizer.step()\n")
    script = tmp_path / "slowed.py"
    script.write_text(source)
    out = tmp_path / "out"
    words = ["profile", script, *SMALL, "--steps=3", "--data", shard, "--out", out]
    assert main([str(word) for word in words]) == 0
    found = json.loads((out / "slowed.json").read_text())
    times = found["times_ms"]
    assert min(times["forward"]) > 100
    assert min(times["optimizer"]) > 150
    # The stages of a step sum to what the script logged for it.
    log = read_log(next(out.glob("*.log")))
    dt = [step["dt_ms"] for step in log.steps]
    timed = [dt[0], *dt[WARMUP_STEPS:-1]]  # the last one ran under the profiler
    sums = np.sum([times[stage] for stage in STAGES], axis=0)
    assert list(sums) == pytest.approx(timed, abs=0.01)
    assert (out / "slowed.trace.json").exists() and "aten::mm" in capsys.readouterr().out


def profile_of(forward, backward, optimizer):
    """Of two steps after the first, each with these milliseconds and 2 more in the optimizer."""
    stages = {"forward": [forward] * 2, "backward": [backward] * 2}
    stages["optimizer"] = [optimizer, optimizer + 2]
    stages["step"] = [forward + backward + optimizer, forward + backward + optimizer + 2]
    return {"times_ms": {stage: [300.0, *times] for stage, times in stages.items()}}


def test_the_summary_calls_no_rung_faster_whose_range_overlaps():
    said = summary({"one": profile_of(10.0, 21.0, 8.0), "two": profile_of(10.0, 20.0, 7.0)})
    assert "is not clearly faster than one, 40.0; " in said


@pytest.mark.parametrize(
    ("numbers", "stages", "gain"),
    [((9, 10), STAGES[2:], "5 %"), ((11, 12), STAGES[:2], "11 %"), ((6, 7), STAGES, "17 %")],
)
def test_a_rung_gets_what_its_diff_changes(numbers, stages, gain):
    """Forward and backward, which a fused optimizer leaves alone, may be faster by chance."""
    before, after = (rung(number).stem for number in numbers)
    assert touched(before, after) == stages
    profiles = {"one": profile_of(30.0, 60.0, 10.0), "two": profile_of(20.0, 60.0, 5.0)}
    said = summary(profiles, stages)
    assert f" is {gain} faster than one" in said


@pytest.mark.cuda
def test_profile_sees_the_kernels_of_the_gpu(shard, tmp_path):
    words = [*ON_CUDA, "--steps", 3, "--data", shard, "--out", tmp_path / "out"]
    done = run_script("-m", "ladder", "profile", 10, *words)
    assert done.returncode == 0, done.stderr
    assert "triton_" in done.stdout and "Self CUDA time total" in done.stdout
