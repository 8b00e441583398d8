"""`ladder profile`: stages, kernels, trace, and what it refuses."""

import json

import pytest
from helpers import ON_CUDA, SMALL, SMALLER, run_script, rung

from ladder.commands.main import main
from ladder.commands.profile import ALONE, STAGES, WARMUP_STEPS, stage_table, verdict
from ladder.log import read_log


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
    first = found["first_ms"]  # which nothing warmed up
    assert min(*times["forward"], first["forward"]) > 100
    assert min(*times["optimizer"], first["optimizer"]) > 200
    # The stages of a step sum to what the script logged for it.
    log = read_log(next(out.glob("*.log")))
    dt = [step["dt_ms"] for step in log.steps]
    timed = dt[WARMUP_STEPS:-1]  # the last one ran under the profiler
    assert times[ALONE] == pytest.approx(timed[::2], abs=0.01)
    stages = [times[stage] for stage in STAGES]
    sums = [sum(step) for step in zip(*stages, strict=True)]
    assert sums == pytest.approx(timed[1::2], abs=0.01)
    assert sum(first[stage] for stage in STAGES) == pytest.approx(dt[0], abs=0.01)
    assert "aten::addmm" in (out / "slowed.trace.json").read_text()
    printed = capsys.readouterr().out
    assert printed.startswith("slowed takes ") and "aten::mm" in printed


def profile_of(forward, optimizer, alone):
    times = {"forward": forward, "backward": [20.0] * 3, "optimizer": optimizer, ALONE: alone}
    first = {"forward": 300.0, "backward": 40.0, "optimizer": 9.0, "sum": 349.0}
    times["sum"] = [f + 20.0 + o for f, o in zip(forward, optimizer, strict=True)]
    return {"first_ms": first, "times_ms": times}


ONE = profile_of([9.0, 10.0, 12.0], [8.0] * 3, [38.0, 40.0, 41.0])
TWO = profile_of([10.5] * 3, [5.0] * 3, [29.0, 32.0, 37.0])


def test_the_table_has_the_first_step_the_range_and_what_the_later_rung_changes():
    table = stage_table({"one": ONE, "two": TWO})
    first, median, *_, change = [list(column.cells) for column in table.columns[1:]]
    assert first == ["300", "40.0", "9.00", "349", ""]
    assert median[0] == "10.0 (9.00–12.0)"
    assert median[3:] == ["38.0 (37.0–40.0)", "40.0 (38.0–41.0)"]
    assert change == ["+0.50", "0.00", "-3.00", "-2.50", "-8.00"]


def test_the_verdict_calls_no_rung_faster_whose_range_overlaps():
    rest = "the longest stage is backward, 20.0 ms."
    assert verdict({"two": TWO}) == f"two takes 32.0 ms a step; {rest}"
    said = "two takes 32.0 ms a step, one 40.0: it is"
    assert verdict({"one": ONE, "two": TWO}) == f"{said} 1.25 times as fast; {rest}"
    near = {**TWO, "times_ms": TWO["times_ms"] | {ALONE: [29.0, 32.0, 38.5]}}
    assert verdict({"one": ONE, "two": near}) == f"{said} not clearly faster; {rest}"


def test_why_a_script_fails_is_told_in_one_line(tmp_path, capsys):
    script = tmp_path / "broken.py"
    script.write_text('raise ValueError("my mistake")\n')
    assert main(["profile", str(script), "--out", str(tmp_path / "out")]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == "error broken.py failed: ValueError: my mistake"


@pytest.mark.cuda
def test_profile_sees_the_kernels_of_the_gpu(shard, tmp_path):
    words = [*ON_CUDA, "--steps", 3, "--data", shard, "--out", tmp_path / "out"]
    done = run_script("-m", "ladder", "profile", 10, *words)
    assert done.returncode == 0, done.stderr
    assert "triton_" in done.stdout and "Self CUDA time total" in done.stdout
