"""`ladder report` of training runs: one curve however often a run was resumed, in a browser too."""

import re

import pytest
from climbs import LOG

from ladder.commands.main import main
from ladder.errors import UsageError
from ladder.log import mfu_line, pairs_line, parse_log, step_line
from ladder.measure.training import read_training
from ladder.show.training import in_words

RUN = parse_log(LOG, "baseline").run | {
    "device": "<b>Test GPU",
    "total_batch": 500_000,
    "ranks": 2,
    "steps": 100,
}


def write_log(path, first, last, vals=(), result="", **run):
    """The log of a run that did these steps; loss 10 - step / 100, a second each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [pairs_line("run", RUN | run)]
    for step, loss in vals:
        lines.append(f"val   step={step} loss={loss} tokens=4096")
    for step in range(first, last + 1):
        numbers = dict(loss=10 - step / 100, dt=1.0, tok_per_s=5e5, norm=1.0, lr=6e-4)
        lines.append(step_line(step - 1, 100, **numbers))
    path.write_text("\n".join(lines) + "\n" + result)
    return path


@pytest.fixture
def resumed(tmp_path, monkeypatch):
    """Stopped at 60, resumed from 40 on one rank, then from 80 by the other script."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "nothing"))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "demo"
    stem = "ddp_run-2026110{}-100000-000000.log"
    write_log(folder / stem.format(1), 1, 60, [(0, 11), (40, 9.7), (41, 9.6), (60, 8)])
    write_log(folder / stem.format(2), 41, 85, [(60, 9.4), (80, 9.3)], ranks=1)
    end = f'{mfu_line(10**9, None, None)}\nRESULT {{"status": "ok", "peak_bytes": null}}\n'
    last = folder / stem.format(3).replace("ddp", "fsdp")
    write_log(last, 81, 100, [(100, 9.2)], end, device="Other GPU")
    (folder / "ddp_run-20261104 copy.log").write_text("not ours")
    return folder


def test_a_run_that_was_resumed_is_one_curve(resumed):
    run = read_training(resumed)
    assert [step.step for step in run.steps] == [*range(1, 101)]
    assert [(val.step, val.loss) for val in run.vals] == [
        (0, 11), (40, 9.7), (60, 9.4), (80, 9.3), (100, 9.2)
    ]  # fmt: skip
    assert run.starts == [1, 41, 81]
    assert run.tokens[-1] == 50
    words = in_words(run)
    assert words["Trained"].startswith("100 steps, 50,000,000 tokens, ")
    assert "epoch_batches=330 " in words["Run"]


def test_logs_without_a_step_are_left_out(resumed):
    """Of a start that was refused. A line that is under way is none."""
    empty = resumed / "ddp_run-20261105-110000-000000.log"
    empty.touch()
    with max(resumed.glob("fsdp_run*")).open("a") as file:
        file.write("step   86/100 | loss 9.1")
    assert read_training(resumed).starts == [1, 41, 81]
    assert main(["report", str(empty)]) == 2


def test_a_log_that_is_left_out_is_named(resumed, capsys):
    """A power cut left zeros in it."""
    path = max(resumed.glob("fsdp_run*"))
    path.write_text(path.read_text().replace("step   90/100", "\0\0"))
    assert read_training(resumed).steps[-1].step == 85
    said = f"note  {path.stem} is not a log of this ladder: "
    assert capsys.readouterr().out.startswith(said)


def test_several_runs_in_a_folder_are_no_curve(tmp_path):
    for day in (1, 2):
        path = tmp_path / f"ddp_run-2026110{day}-100000-000000.log"
        write_log(path, 1, 3, result="saved step=3 file=step_000003.pt\n")
    with pytest.raises(UsageError, match="has the logs of several runs: name them"):
        read_training(tmp_path)


def test_losses_that_are_not_finite_are_not_drawn(tmp_path):
    """Beside a run without a step, which is a line to beat."""
    path = write_log(tmp_path / "run.log", 1, 3, [(2, "nan")])
    text = path.read_text().replace("norm 1.0000e+00", "norm inf")
    path.write_text(re.sub(r"loss [\d.]+", "loss nan", text))
    beat = write_log(tmp_path / "beat.log", 1, 0, [(0, 9.25)])
    page = tmp_path / "page.html"
    assert main(["report", str(path), str(beat), "--out", str(page)]) == 0
    assert "/beat.log: 9.2500</text>" in page.read_text()
    assert not re.findall(r'points="[^"]*(nan|inf)', page.read_text())
