"""The log format, written and read back, and what its numbers are made of."""

import re
import statistics

import pytest
import torch
from conftest import ROOT, SMALL, SMALLER, load, rung

from ladder import files, machine
from ladder.batches import Batches
from ladder.cli import parse_args
from ladder.corpus import load_corpus
from ladder.log import mfu_line, pairs_line, read_log, result, step_line
from ladder.run import Run


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


TOKENS = 100_000  # of the shard that these runs read
DDP = ["--no-compile", "--total-batch=256", "--eval-every=0", "--ckpt-every=0"]


@pytest.mark.parametrize(
    ("script", "flags", "corpus_tokens", "tokens_per_step", "epoch_batches", "dropped"),
    [
        # (100,000 - 1) // 64 = 1562 rows, 31 tokens dropped; two rows a batch.
        ("baseline.py", [], TOKENS, 128, "781", "31"),
        # Of the first 90 %: 1406 rows, 15 tokens dropped; four rows a step.
        ("ddp_run.py", DDP, 90_000, 256, "351.5", "15"),
    ],
)
def test_result_follows_from_the_step_lines(
    script, flags, corpus_tokens, tokens_per_step, epoch_batches, dropped, run_main, monkeypatch
):
    peak = 1e11
    monkeypatch.setattr(machine, "peak_flops", lambda _: peak)
    log = run_main(load(ROOT / script), "--steps", 7, *flags)

    assert [step["step"] for step in log.steps] == list(range(1, 8))
    for step in log.steps:  # tokens per second, not per millisecond; dt has two digits of one
        slowest = tokens_per_step / (step["dt"] + 5.1e-6)
        fastest = tokens_per_step / (step["dt"] - 5.1e-6)
        assert slowest - 0.51 < step["tok_per_s"] < fastest + 0.51

    found = log.result
    assert (found["warmup_steps"], found["measured_steps"]) == (2, 5)
    times = [step["dt"] * 1e3 for step in log.steps]  # ms, to two digits
    deciles = statistics.quantiles(times[2:], n=10, method="inclusive")
    ms = {"p10_ms": deciles[0], "median_ms": deciles[4], "p90_ms": deciles[8]}
    ms["first_step_ms"] = times[0]
    assert {key: found[key] for key in ms} == pytest.approx(ms, abs=0.01)
    tok_per_s = tokens_per_step / (found["median_ms"] / 1e3)
    slowest = tokens_per_step * 1e3 / (found["median_ms"] + 0.00051)  # which has three digits
    fastest = tokens_per_step * 1e3 / (found["median_ms"] - 0.00051)
    assert slowest - 0.051 < found["tok_per_s"] < fastest + 0.051
    for step, key in ((log.steps[0], "first_loss"), (log.steps[-1], "final_loss")):
        assert found[key] == pytest.approx(step["loss"], abs=1e-6)

    # SMALLER has 2 layers, C = 64 and 256 words; the blocks, the last norm, and the head once.
    N = 2 * (12 * 64**2 + 13 * 64) + 2 * 64 + 256 * 64
    flops = 6 * N + 12 * 2 * 64 * 64
    assert int(log.mfu["flops_per_token"]) == flops and float(log.mfu["peak_flops"]) == peak
    assert found["mfu"] == pytest.approx(flops * tok_per_s / peak, abs=1e-4)
    assert float(log.mfu["mfu"]) == found["mfu"] > 0.001
    assert found["peak_bytes"] > 1e8

    params = N + 1024 * 64
    if script == "baseline.py":  # its head is not tied to the embedding
        params += 256 * 64
    expected = {"B": 2, "T": 64, "steps": 7, "seed": 1337, "tokens": corpus_tokens}
    expected |= {"params": params, "data": "topics"}
    expected |= {"epoch_batches": epoch_batches, "dropped": dropped}
    for key, value in expected.items():
        assert log.run[key] == str(value), key
    assert len(log.run["data_sha256"]) == 12

    page = (ROOT / "docs" / "log.md").read_text(encoding="utf-8")
    for key in (*log.run, *log.effective, *log.mfu, *found):
        assert f"`{key}`" in page


def test_what_only_the_screen_shows(shard, tmp_path, small_model, capsys):
    args = parse_args("doc", [*SMALL, "--steps=6", "--log-dir", str(tmp_path)])
    module = load(rung(3))
    model = module.GPT(module.GPTConfig(**SMALLER))
    with Run(rung(3), args) as run:
        run.header(model, Batches(load_corpus(str(shard), print), 2, 64))
        for step, dt in enumerate([90, 10, 40, 20, 0.05, 0.05]):
            run.log(step, loss=9 - step, dt=dt, tok_per_s=128 / dt)
    out = capsys.readouterr().out
    # The median of the steps after the first, times the steps left.
    assert re.findall(r" \| left (.*)", out) == ["0:00:40", "0:01:15", "0:00:40", "0:00:15"]
    last = "03_bf16_autocast: 13 tok/s, 10,025.0 ms a step, loss 9.00 -> 4.00"
    assert out.splitlines()[-1] == last


def test_result_is_that_of_the_steps_after_the_warm_up():
    known = dict(tokens_per_step=1000, flops_per_token=3e9, peak_flops=1e13, ranks=2)
    times = [9.0, 2.0, 0.1, 0.3, 0.7]
    losses = [11.0, 10.0, 9.0, 8.0, float("nan")]
    found = result(times, losses, steps=8, **known)
    assert found == {
        **{"median_ms": 300, "p10_ms": 140, "p90_ms": 620, "first_step_ms": 9000},
        **{"measured_steps": 3, "warmup_steps": 2},
        **{"tok_per_s": 3333.3, "mfu": 0.5, "peak_bytes": None},
        **{"first_loss": 11.0, "final_loss": None},
    }
    assert mfu_line(3 * 10**9, 1e13, found["mfu"]) == (
        "mfu   mfu=0.5000 formula=6N+12LCT flops_per_token=3000000000 peak_flops=1e+13"
    )
    early = result(times[:2], losses[:2], steps=50, **known)
    assert (early["measured_steps"], early["warmup_steps"], early["median_ms"]) == (0, 2, None)
    known["peak_flops"] = None
    assert result(times, losses, steps=8, **known)["mfu"] is None


def test_warm_up_is_a_third_of_the_steps_at_least_two_and_at_most_ten():
    known = dict(tokens_per_step=1, flops_per_token=1, peak_flops=None)
    warmup = {1: 0, 2: 1, 3: 2, 8: 2, 9: 3, 20: 6, 50: 10}
    for steps, expected in warmup.items():
        found = result([1.0] * steps, [2.0] * steps, steps=steps, **known)
        assert (found["warmup_steps"], found["measured_steps"]) == (expected, steps - expected)


@pytest.mark.parametrize("steps", [1, 3])
def test_a_run_has_as_many_steps_as_it_was_asked_for(steps, run_main):
    """The profile is one of the second step, and the first two are not a measurement."""
    log = run_main(load(rung(0)), "--steps", steps)
    assert len(log.steps) == steps and log.result["status"] == "ok"
    assert log.effective.get("attention") == (None if steps == 1 else "math")
    assert ("not a measurement" in " ".join(log.notes)) == (steps < 3)


def test_the_commit_is_head_and_whether_running_code_differs(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "ROOT", tmp_path)
    assert files.commit() == "unknown"  # no repository
    running = ("baseline.py", "peers/a.py", "ladder/measure/matmul.py", "ladder/measure/work.json")
    others = ("README.md", "ladder/commands/climb.py", "ladder/show/page.py")
    for name in (*running, *others):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    files.git("init")
    files.git("add", ".")
    files.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-m", "all")
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


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA A10G", 70e12),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("AMD Instinct MI250X / MI250", None),  # either
    ],
)
def test_peak_rates_are_found_by_whole_words(name, peak, monkeypatch):
    monkeypatch.setattr(machine, "device_name", lambda device: name)
    assert machine.peak_flops(torch.device("cuda")) == peak
