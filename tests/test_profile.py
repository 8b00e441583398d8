"""`ladder profile`: stages, kernels, trace, and what it refuses."""

import json

import pytest
from conftest import SMALL, SMALLER, rung

from ladder.commands.main import main
from ladder.commands.profile import PROFILED_STEPS, STAGES, WARMUP_STEPS, report
from ladder.measure.parser import read_log
from ladder.show.screen import Screen

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

    # The stages of a step sum to what the script logged for it.
    timed = [step["dt"] * 1e3 for step in log.steps[WARMUP_STEPS:-PROFILED_STEPS]]
    times = found["times_ms"]
    assert times["step"] == pytest.approx(timed[::2], abs=0.01)
    sums = [sum(stages) for stages in zip(*(times[stage] for stage in STAGES), strict=True)]
    assert sums == pytest.approx(timed[1::2], abs=0.01)

    # Kernels are parts of one whole, longest first; the trace has each by its name.
    names, ms = zip(*((kernel["name"], kernel["ms"]) for kernel in found["kernels"]), strict=True)
    assert [*ms] == sorted(ms, reverse=True) and sum(ms) == pytest.approx(found["self_ms"])
    assert sum(kernel["share"] for kernel in found["kernels"]) == pytest.approx(1)
    trace = json.loads((path.parent / f"{stem}.trace.json").read_text())
    assert {*names} <= {event["name"] for event in trace["traceEvents"]}
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
    names, new = ({kernel["name"] for kernel in p["kernels"]} for p in (before, after))
    assert "aten::_fused_adamw_" in new - names and "aten::addcdiv_" in names - new
    change = after["median_ms"]["optimizer"] - before["median_ms"]["optimizer"]
    assert "difference" in printed and f"{change:+.2f}" in printed
    # What torch.compile generated shows itself.
    assert any("cpp_fused" in name and "layer_norm" in name for name in new)


def numbers(script, stages, kernels):
    """The numbers of one profile, as a script's process writes them."""
    table = [{"name": name, "ms": ms, "share": ms / 10, "calls": 1} for name, ms in kernels.items()]
    run = {"script": script, "device": "a GPU", "model": "gpt2", "B": 1, "T": 4}
    medians = {**dict(zip(STAGES, stages, strict=True)), "step": 10.0}
    times = {"step": [10.0]}
    more = {"self_ms": 10.0, "kernels_launched": 7, "kernels": table}
    return {"run": run, "median_ms": medians, "times_ms": times, **more}


def test_the_report_of_two_rungs_has_the_top_of_each_and_names_a_cuda_graph(capsys):
    first = {f"first{n}": 20.0 - n for n in range(12)} | {"both": 0.5}
    second = {"both": 30.0} | {f"second{n}": 19.5 - n for n in range(12)}
    eager = numbers("candidates/13_a.py", (3.0, 5.0, 2.0), first)
    graph = numbers("candidates/18_b.py", (0.0, 0.0, 9.0), second)
    report([eager, graph], Screen(width=120))
    said = capsys.readouterr().out
    assert "18 b replays a CUDA graph: all of it counts as optimizer." in said
    assert "13 a replays" not in said
    assert "The 10 most expensive of each rung, 20 in all" in said
    rows = [line.split("│")[1:-1] for line in said.splitlines() if line.startswith("│")]
    stages = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}
    assert stages["sum"] == ["10.00", "9.00", "-1.00"]
    assert stages["kernels launched"] == ["7", "7", "+0"]
    names = [row[0].strip() for row in rows if len(row) == 3]
    assert names[:3] == ["both", "first0", "second0"] and "first10" not in names
    assert stages["both"] == ["0.50   5.0%     1", "30.00 300.0%     1"]
    assert stages["second0"][0] == "–"


def test_why_a_script_fails_is_told_in_one_line(tmp_path, capsys):
    script = tmp_path / "broken.py"
    script.write_text('raise ValueError("my mistake")\n')
    assert main(["profile", str(script), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == "error broken.py failed: ValueError: my mistake\n"
