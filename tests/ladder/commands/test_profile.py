"""`ladder profile`: stages, kernels, trace, and what it refuses."""

import json

import numpy as np
import pytest
from climbs import LOG
from helpers import ON_CUDA, SMALL, SMALLER, run_script, rung
from rich.console import Console

from ladder.commands.main import main
from ladder.commands.profile import Profile, stage_table
from ladder.log import parse_log, read_log
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
    found = json.loads((out / "slowed-tiny.json").read_text())
    times = found["times_ms"]
    assert min(times["forward"]) > 100
    assert min(times["optimizer"]) > 150
    # The stages of a step sum to what the script logged for it.
    log = read_log(next(out.glob("slowed-tiny/*.log")))
    dt = [step.dt_ms for step in log.steps]
    sums = np.sum([times[stage] for stage in STAGES], axis=0)
    assert list(sums) == pytest.approx(dt[:-1], abs=0.01)  # the last one ran under the profiler
    assert (out / "slowed-tiny.trace.json").exists() and "aten::mm" in capsys.readouterr().out


def test_a_row_has_the_first_step_and_the_spread_of_those_after_the_warm_up():
    warmup = [900.0] + [90.0] * (WARMUP_STEPS - 1)
    times = {stage: [*warmup, 2.0, 4.0, 6.0] for stage in STAGES}
    times["step"] = [*warmup, 600, 900, 900]
    log = parse_log(LOG, "baseline")
    console = Console(width=120)
    with console.capture() as shown:
        console.print(stage_table([Profile("one", log, times, "")]))
    row = shown.get().splitlines()[-2].split("  ")
    cells = [cell.strip() for cell in row if cell.strip()]
    assert " ".join(cells) == f"one gpt2 4 900{' 4.0 ± 2.0' * 3} 900 ± 173"


@pytest.mark.cuda
def test_profile_sees_the_kernels_of_the_gpu(shard, tmp_path):
    words = [*ON_CUDA, "--steps", 3, "--data", shard, "--out", tmp_path / "out"]
    done = run_script("-m", "ladder", "profile", 10, *words)
    assert done.returncode == 0, done.stderr
    assert "triton_" in done.stdout and "Self CUDA time total" in done.stdout
