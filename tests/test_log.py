"""The log format, written and read back, and what its numbers are made of."""

import re

import pytest
import torch
from conftest import ROOT, load, rung

from ladder import files, machine
from ladder.log import mfu_line, pairs_line, result, step_line
from ladder.measure.parser import read_log
from ladder.run import flops_per_token


def test_lines_survive_a_round_trip(tmp_path):
    path = tmp_path / "a.log"
    lines = [
        pairs_line("run", {"device": "NVIDIA H100 80GB HBM3", "data": 'a "b" \\ c\n', "B": 16}),
        "note  downloading",
        step_line(19, 50, loss=6.123456, dt=0.09831, tok_per_s=166657.3, norm=1.5, lr=6e-4),
        pairs_line("effective", {"matmul": "high(setting)", "autocast": "bfloat16"}),
        'RESULT {"median_ms": 98.31}',
    ]
    assert lines[2] == (
        "step   20/50 | loss 6.123456 | dt    98.31 ms | tok/s  166657"
        " | norm 1.5000e+00 | lr 6.0000e-04"
    )
    path.write_text("\n".join(lines))
    log = read_log(path)
    assert log.run == {"device": "NVIDIA H100 80GB HBM3", "data": r'a "b" \ c\n', "B": "16"}
    assert log.effective == {"matmul": "high(setting)", "autocast": "bfloat16"}
    (step,) = log.steps
    assert step.pop("dt") == pytest.approx(0.09831)
    assert step == {"step": 20, "loss": 6.123456, "tok_per_s": 166657, "norm": 1.5, "lr": 6e-4}
    assert log.result == {"median_ms": 98.31} and log.notes == ["downloading"]
    # A copy of the screen is a log too.
    lines[2] += " | left 2.5 min"
    path.write_text("\n".join([*lines, "00 baseline: 5 tok/s"]))
    assert read_log(path).result == {"median_ms": 98.31}


def test_numbers_of_a_real_log_agree_with_each_other(run_main, capsys):
    log = run_main(load(rung(0)), "--steps", 6)
    B, T = int(log.run["B"]), int(log.run["T"])
    assert [step["step"] for step in log.steps] == list(range(1, 7))
    for step in log.steps:  # tokens per second, not per millisecond
        assert step["tok_per_s"] == pytest.approx(B * T / step["dt"], rel=1e-3, abs=0.51)
    found = log.result
    times = sorted(step["dt"] * 1e3 for step in log.steps[2:])
    assert found["median_ms"] == pytest.approx((times[1] + times[2]) / 2, abs=0.02)
    assert found["first_loss"] == pytest.approx(log.steps[0]["loss"], abs=1e-6)
    assert found["final_loss"] == pytest.approx(log.steps[-1]["loss"], abs=1e-6)
    assert found["mfu"] is None and log.mfu["mfu"] == "unknown"  # no CPU is in the table
    assert found["peak_bytes"] > 1e8
    assert log.run["data"] == "topics" and not log.notes

    *_, result_line, last = capsys.readouterr().out.splitlines()
    assert result_line.startswith("RESULT ")
    assert re.fullmatch(
        rf"baseline: {found['tok_per_s']:,.0f} tok/s, [\d,.]+ ms a step \(4 of 6 steps measured"
        rf"\), \d\.\d GB, loss {found['first_loss']:.2f} -> {found['final_loss']:.2f}; "
        "next: ladder diff 1",
        last,
    )
    page = (ROOT / "docs" / "log.md").read_text(encoding="utf-8")
    of_steps = ("loss", "dt", "tok/s", "norm", "lr", "left", "total_batch", "ranks")
    keys = [*log.run, *log.effective, *log.mfu, *found, "compile_cache", *of_steps]
    assert [key for key in keys if f"`{key}`" not in page] == []


def test_result_is_that_of_the_steps_after_the_warm_up():
    facts = dict(tokens_per_step=1000, flops_per_token=3e9, peak_flops=1e13, ranks=2)
    times, losses = [9.0, 2.0, 0.1, 0.2, 0.3], [11.0, 10.0, 9.0, 8.0, float("nan")]
    found = result(times, losses, steps=8, **facts)
    assert found == {
        **{"median_ms": 200, "p10_ms": 120, "p90_ms": 280, "first_step_ms": 9000},
        **{"measured_steps": 3, "warmup_steps": 2},
        **{"tok_per_s": 5000, "mfu": 0.75, "peak_bytes": None},
        **{"first_loss": 11.0, "final_loss": None},
    }
    assert mfu_line(3 * 10**9, 1e13, found["mfu"]) == (
        "mfu   mfu=0.7500 formula=6N+12LCT flops_per_token=3000000000 peak_flops=1e+13"
    )
    early = result(times[:2], losses[:2], steps=50, **facts)
    assert (early["measured_steps"], early["warmup_steps"], early["median_ms"]) == (0, 2, None)


@pytest.mark.parametrize("steps", [1, 3])
def test_a_run_has_as_many_steps_as_it_was_asked_for(steps, run_main, monkeypatch):
    """The profile is one of the second step, and the first two are not a measurement."""
    module, read = load(rung(0)), []
    fetch = module.Batches.__next__
    monkeypatch.setattr(module.Batches, "__next__", lambda self: read.append(1) or fetch(self))
    log = run_main(module, "--steps", steps)
    assert len(read) == len(log.steps) == steps and log.result["status"] == "ok"
    assert log.effective.get("attention") == (None if steps == 1 else "math")
    assert (log.result["warmup_steps"], log.result["measured_steps"]) == (steps - 1, 1)
    assert any("not a measurement" in note for note in log.notes) == (steps < 3)


def test_the_commit_is_head_and_whether_running_code_differs(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "ROOT", tmp_path)
    assert files.commit() == "unknown"  # no repository
    running = ("baseline.py", "peers/a.py", "ladder/measure/gemm.py", "ladder/measure/work.json")
    others = ("README.md", "ladder/commands/climb.py", "ladder/show/page.py")
    for name in (*running, *others):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init"], ["add", "."], [*author, "commit", "-m", "all"]):
        files.git(*words)
    head = files.git("rev-parse", "HEAD").stdout[:12]
    for name in others:
        (tmp_path / name).write_text("2")
    assert files.commit() == head
    for name in running:
        (tmp_path / name).write_text("2")
        assert files.commit() == f"{head}-dirty", name
        files.git("checkout", "--", name)
    (tmp_path / "ladder" / "mine.py").touch()
    assert files.commit() == f"{head}-dirty"
    (tmp_path / "COMMIT").write_text("0123456789ab\n")  # of a climb's copy of the code
    assert files.commit() == "0123456789ab"


def test_flops_per_token_of_the_124m_model():
    for number, vocabulary in ((0, 50257), (10, 50304)):
        module = load(rung(number))
        with torch.device("meta"):
            model = module.GPT(module.GPTConfig())
        blocks = 12 * (12 * 768**2 + 13 * 768) + 2 * 768
        N = blocks + vocabulary * 768
        assert flops_per_token(model, 1024) == 6 * N + 12 * 12 * 768 * 1024


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA A10", 125e12),
        ("NVIDIA A10G", 70e12),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("AMD Instinct MI250X / MI250", None),  # either
    ],
)
def test_peak_rates_are_found_by_whole_words(name, peak, monkeypatch):
    monkeypatch.setattr(machine, "device_name", lambda device: name)
    assert machine.peak_flops(torch.device("cuda")) == peak
