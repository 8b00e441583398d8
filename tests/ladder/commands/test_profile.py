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
    timed = [dt[0], *dt[WARMUP_STEPS:-1]]  # the last one ran under the profiler
    sums = np.sum([times[stage] for stage in STAGES], axis=0)
    assert list(sums) == pytest.approx(timed, abs=0.01)
    assert (out / "slowed.trace.json").exists() and "aten::mm" in capsys.readouterr().out


def test_the_summary_calls_no_rung_faster_whose_range_overlaps():
    times = {"forward": [300.0, 9.0, 10.0, 12.0], "backward": [1.0, 20.0], "optimizer": [1.0, 8.0]}
    one = {"times_ms": times | {"step": [310.0, 38.0, 40.0, 41.0]}}
    two = {"times_ms": times | {"step": [310.0, 29.0, 32.0, 37.0]}}
    said = "two takes 32.0 ms a step and is 25 % faster than one, 40.0; "
    assert summary({"one": one, "two": two}).startswith(said)
    two["times_ms"]["step"].append(38.5)
    assert "is not clearly faster than one, 40.0; " in summary({"one": one, "two": two})


@pytest.mark.cuda
def test_profile_sees_the_kernels_of_the_gpu(shard, tmp_path):
    words = [*ON_CUDA, "--steps", 3, "--data", shard, "--out", tmp_path / "out"]
    done = run_script("-m", "ladder", "profile", 10, *words)
    assert done.returncode == 0, done.stderr
    assert "triton_" in done.stdout and "Self CUDA time total" in done.stdout
