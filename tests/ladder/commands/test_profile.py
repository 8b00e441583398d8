"""`ladder profile`: stages, kernels, trace, and what it refuses."""

import json

import numpy as np
import pytest
from helpers import ON_CUDA, SMALL, SMALLER, run_script, rung

from ladder.commands.main import main
from ladder.commands.profile import summary
from ladder.log import read_log
from ladder.measure.stages import STAGES, WARMUP_STEPS


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
    sums = np.sum([times[stage] for stage in STAGES], axis=0)
    assert list(sums) == pytest.approx(dt[:-1], abs=0.01)  # the last one ran under the profiler
    assert (out / "slowed.trace.json").exists() and "aten::mm" in capsys.readouterr().out


def test_the_summary_names_the_longest_stage_of_the_timed_steps():
    warmup = [90.0] * WARMUP_STEPS
    stages = {"forward": [*warmup, 1.0, 2.0], "backward": [5.0] * 3 + [7.0, 9.0]}
    said = summary("one", stages | {"optimizer": [3.0] * 5, "step": [*warmup, 11.0, 14.0]})
    assert said == "one takes 12.5 ms a step; its longest stage is backward, 8.0 ms"


@pytest.mark.cuda
def test_profile_sees_the_kernels_of_the_gpu(shard, tmp_path):
    words = [*ON_CUDA, "--steps", 3, "--data", shard, "--out", tmp_path / "out"]
    done = run_script("-m", "ladder", "profile", 10, *words)
    assert done.returncode == 0, done.stderr
    assert "triton_" in done.stdout and "Self CUDA time total" in done.stdout
