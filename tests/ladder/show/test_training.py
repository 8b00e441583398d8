"""`ladder report` of training runs: one curve however often a run was resumed, in a browser too."""

import lzma
import re
import shutil
from pathlib import Path

import pytest
from climbs import LOGS
from helpers import refused

from ladder.commands.main import main
from ladder.log import mfu_line, pairs_line, step_line
from ladder.show import training

RUN = {
    "script": "ddp_run.py", "commit": "0123456789ab", "torch": "2.13.0", "python": "3.12",
    "device": "<b>Test GPU", "model": "gpt2", "params": 124475904, "B": 16, "T": 1024,
    "total_batch": 500_000, "ranks": 2, "steps": 100, "data": "my text", "data_sha256": "abcdef",
    "tokens": 10_000_000, "seed": 1337, "epoch_batches": 20,
}  # fmt: skip


STEPS = training.Axis("steps", "steps", 1)


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
    write_log(folder / stem.format(1), 1, 60, [(0, 11), (40, 9.7), (60, 8)])
    write_log(folder / stem.format(2), 41, 85, [(60, 9.4), (80, 9.3)], ranks=1)
    end = f'{mfu_line(10**9, None, None)}\nRESULT {{"status": "ok", "peak_bytes": null}}\n'
    last = folder / stem.format(3).replace("ddp", "fsdp")
    write_log(last, 81, 100, [(100, 9.2)], end, device="Other GPU")
    (folder / "ddp_run-20261104 copy.log").write_text("not ours")
    return folder


def the_run(path):
    """The one run at a path."""
    ((at, texts),) = training.find_runs(path).items()
    return training.gather_run(at, training.read_logs(texts)[0])


def test_a_run_that_was_resumed_is_one_curve(resumed):
    run = the_run(resumed)
    assert [step["step"] for step in run.steps] == [*range(1, 101)]
    assert [(val["step"], val["loss"]) for val in run.vals] == [
        (0, 11), (40, 9.7), (60, 9.4), (80, 9.3), (100, 9.2)
    ]  # fmt: skip
    ends = {name: done[-1] for name, done in run.done.items()}
    assert ends == {"tokens": 50e6, "steps": 100, "seconds": 100}


def test_the_running_mean_stands_in_the_middle_of_its_steps(resumed):
    """Of a straight line it is the same line. The axis of the speed begins at 0."""
    run = the_run(resumed)
    panel = training.panel([run], [], STEPS, "loss")
    ((_, _, x, y),) = (line for line in panel.lines if line[0] == "mean")
    assert len(x) == len(y) == 100 - run.window + 1
    assert y == pytest.approx(10 - x / 100)
    assert training.panel([run], [], STEPS, "tok_per_s").up.low == 0


def test_a_run_in_words(resumed):
    said = dict(training.facts(the_run(resumed)))
    assert said["Validation"].startswith("best 9.2000, after step 100")
    done = "100 of 100 steps, 50,000,000 tokens, the text 5.00 times; 1.7 minutes of steps"
    assert said["Trained"] == done
    assert said["Resumed"] == "went on after step 40, 80" and said["Ended"] == "ok"
    # Resumed once more, it has nothing left to train, and the last log no RESULT.
    write_log(resumed / "ddp_run-20261104-100000-000000.log", 101, 100, [(100, 9.2)])
    assert dict(training.facts(the_run(resumed)))["Ended"] == "all steps are done"


def test_the_unit_of_an_axis_suits_the_longest_run(resumed, tmp_path):
    short = write_log(tmp_path / "run.log", 1, 9, total_batch=512)
    assert training.training_section([short]).axes[0].name == "thousand tokens"
    assert training.training_section([short, resumed]).axes[0].name == "million tokens"


def test_logs_without_a_step_are_named_and_left_out(resumed, capsys):
    """Of a start that was refused, and of a disk that was full."""
    stem = "ddp_run-2026110{}-110000-000000.log"
    empty = resumed / stem.format(5)
    empty.touch()
    stepless = resumed / stem.format(6)
    stepless.write_text(pairs_line("run", RUN | {"model": "gpt2-xl"}) + "\nerror no such text\n")
    assert main(["report", str(resumed)]) == 0
    said = capsys.readouterr().out
    assert f"left out: {empty} is not a log of this ladder: it has no run line\n" in said
    assert f"left out: {stepless} has no step\n" in said
    assert "demo: training gpt2 on " in said
    assert main(["report", str(empty)]) == 2


def test_a_log_that_lacks_a_value_is_refused_in_one_line(tmp_path, capsys):
    path = write_log(tmp_path / "run.log", 1, 3, [(2, 9)])
    path.write_text(path.read_text().replace("tokens=4096", ""))
    said = refused(capsys, "report", path, "--out", tmp_path / "page.html")
    assert said.startswith(f"error {path} is not a log of this ladder: line 2: ")


def test_a_run_whose_losses_are_all_nan_is_shown(tmp_path):
    path = write_log(tmp_path / "run.log", 1, 3, [(2, "nan")])
    path.write_text(re.sub(r"loss [\d.]+", "loss nan", path.read_text()))
    assert main(["report", str(path), "--out", str(tmp_path / "page.html")]) == 0


def test_runs_are_named_apart_by_their_folders():
    paths = [Path("one", "demo"), Path("two", "demo")]
    assert training.distinct_names(paths) == ["one/demo", "two/demo"]


def test_a_published_run_is_whole(tmp_path):
    """Two logs of one run that was resumed; another run's beside them is none of it."""
    packed = LOGS / "2026-11-25-amd-epyc-1-thread-train-tiny" / "runs.log"
    compressed = tmp_path / "runs.log.xz"
    compressed.write_bytes(lzma.compress(packed.read_bytes()))
    for path in (packed, packed.parent, compressed, tmp_path):
        assert the_run(path).starts == [1, 117]


def test_a_path_without_a_run_is_named_and_what_is_in_it(resumed, tmp_path, capsys):
    assert main(["report", "nothing"]) == 2
    assert "nothing does not exist" in capsys.readouterr().err
    shutil.copytree(resumed, tmp_path / "all" / "one")
    assert main(["report", "all"]) == 2
    assert "no log of a run: name one of all/one" in capsys.readouterr().err


def test_a_run_under_way_is_shown_as_far_as_it_is(resumed):
    path = max(resumed.glob("ddp_run*-000000.log"))
    with path.open("a") as file:
        file.write("step   86/100 | loss 9.1")
    assert the_run(path).steps[-1]["step"] == 85


def test_a_chart_says_which_values_are_cut_off(tmp_path):
    path = write_log(tmp_path / "run.log", 1, 50)
    path.write_text(path.read_text().replace("norm 1.0000e+00", "norm 7.5000e+00", 1))
    norm = training.panel([the_run(path)], [], STEPS, "norm")
    assert norm.caption == "gradient norm, before clipping; cut off above, the highest is 7.5"


def test_reference_lines_are_of_the_same_model_and_of_my_text(tmp_path):
    """A run of no step is a line; llm.c's loss is that at as many tokens."""
    run = write_log(tmp_path / "run.log", 1, 100)
    mine = write_log(tmp_path / "mine.log", 1, 0, [(0, 3.5)])
    section = training.training_section([mine, run])
    names = [line.text[:7] for line in section.legend if line.css_class == "reference"]
    assert names == ["mine.lo", "OpenAI'", "llm.c t"]
    own, openai, llmc = [y for name, _, _, y in section.charts[0].lines if name == "reference"]
    assert set(own) == {3.5} and set(openai) == {3.2924}
    assert llmc[-1] == pytest.approx(11.0092 - 50 / 131 * (11.0092 - 6.171))
    other = write_log(tmp_path / "tiny.log", 1, 9, model="tiny")
    assert len(training.training_section([other]).legend) == 1


def test_a_rung_beside_a_run_has_the_panels_that_both_have(resumed, tmp_path):
    rung = write_log(tmp_path / "baseline.log", 1, 20)
    text = rung.read_text().replace(" | norm 1.0000e+00 | lr 6.0000e-04", "")
    rung.write_text(text.replace(" total_batch=500000", ""))
    charts = training.training_section([resumed, rung]).charts
    assert [chart.key for chart in charts] == ["loss", "tok_per_s"] * 3  # on three axes


def test_the_page_of_a_run_in_a_browser(resumed, chromium, shown, narrow):
    """Four panels over the axis that is chosen, its marks, at two widths.

    A loss and a norm that are not finite do not spoil it.
    """
    for path in resumed.glob("ddp_run-20261102-*.log"):
        text = path.read_text().replace("loss 9.520000", "loss nan")
        path.write_text(text.replace("norm 1.0000e+00", "norm inf", 1))
    assert main(["report", str(resumed)]) == 0
    chromium.get(resumed.with_name("report.html").as_uri())
    (heading,) = shown("h2")
    assert heading.text == "Training gpt2 on my text: best validation loss 9.20 nats a token"
    assert "went on after step 40, 80" in chromium.find_element("tag name", "main").text
    for width, choice in zip((1200, 400, 400), shown(".choice input"), strict=True):
        choice.click()
        narrow(width)
        assert len(shown(".chart")) == 4
        assert len(shown(".chart.loss path.mark")) == 2
        (mean,) = shown(".chart.loss .mean")
        assert "nan" not in mean.get_attribute("points")
