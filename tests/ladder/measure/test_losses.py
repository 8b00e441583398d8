"""What a climb of 100 steps or more says of its losses: how much lower, and how soon as low."""

import io
import json
import re

import blocks
import numpy as np
import publish
import pytest
from blocks import other_setting
from climbs import a_climb
from publish import read_publishable
from rich.console import Console
from scipy.stats import nct
from scipy.stats import t as student

from ladder.commands import main
from ladder.errors import BadInput
from ladder.files import ROOT
from ladder.log import Log, pairs_line, step_line
from ladder.measure.climb import Climb
from ladder.measure.losses import end_loss, steps_to
from ladder.measure.rows import Row, loss_change, read_climb
from ladder.measure.stats import mean_of
from ladder.show import tables
from ladder.show.gather import gather
from ladder.show.page import page

SPREAD_BY_ROUND = np.array([[0.0], [0.001], [-0.001]])  # differences are never all the same


def as_log(losses) -> Log:
    return Log(steps=[{"loss": loss} for loss in losses])


def as_row(losses, stem="synthetic") -> Row:
    """A row of runs with these losses: (rounds, steps)."""
    return Row(stem, {k: as_log(one) for k, one in enumerate(losses, 1)})


def climb_in(folder, losses, *, ms=10.0, kind="climb", **run):
    """Write a climb of scripts with these losses, each (rounds, steps), and times of a step (ms, or
    one for each script). Round k has the seed 1336 + k."""
    folder.mkdir(parents=True)
    scripts = list(losses)
    rounds = len(losses[scripts[0]])
    flops = [1e12] * rounds
    random = np.random.default_rng(51)
    for script, time in zip(scripts, np.broadcast_to(ms, len(scripts)), strict=True):
        for k, values in enumerate(losses[script], 1):
            steps = len(values)
            settings = dict(script=script, commit="0123456789ab", torch="2", device="CPU")
            settings |= dict(model="gpt2", B=4, T=64, steps=steps, seed=1336 + k)
            settings |= dict(data="tinyshakespeare", data_sha256="86c4e6aa9db7")
            settings |= dict(epoch_batches=1320.2) | run
            dt = time / 1e3 * (1 + random.uniform(0, 0.001))  # else there is no spread
            lines = [pairs_line("run", settings), pairs_line("effective", {"compiled": "yes"})]
            for step, loss in enumerate(values):
                line = step_line(step, steps, loss=loss, dt=dt, tok_per_s=256 / dt)
                lines.append(line)
            lines.append("mfu   mfu=unknown formula=x flops_per_token=1000 peak_flops=unknown")
            result = dict(status="ok", warmup_steps=10, measured_steps=steps - 10, peak_bytes=1)
            result |= dict(first_step_ms=1.0, first_loss=11.0, final_loss=values[-1])
            lines.append(f"RESULT {json.dumps(result)}")
            name = script.rpartition("/")[2].removesuffix(".py")
            (folder / f"{name}.r{k}.log").write_text("\n".join(lines) + "\n")
    a_climb(
        kind=kind,
        started="2026-12-24 10:00",
        rounds=rounds,
        scripts=scripts,
        flags=["--steps=100"],
        device="CPU",
        peak_dtype="float32",
        rates={"peak_flops": flops, "fp32_flops": flops, "copy_bytes_per_s": flops},
        clocks={"before": "unknown", "after": "unknown"},
    ).save_to(folder)
    return folder


def falling(low, steps=100, rounds=3, slope=0.01):
    """Losses that fall by `slope` each step to `low`, the same in all rounds."""
    return np.tile(low + slope * np.arange(steps - 1, -1, -1), (rounds, 1))


def on_screen(folder, width) -> str:
    climb, rows = read_climb(folder)
    console = Console(file=io.StringIO(), width=width)
    console.print(tables.for_terminal(climb, rows, console))
    return console.file.getvalue()


# ------------------------------------------------------------------ is the interval right?


SPREAD = np.sqrt(2 * (0.04**2 + 0.1**2 / 2))  # of one round's difference


def simulated(random, rounds, difference=0.0):
    """Two scripts, the second of which ends `difference` higher, in runs of 20 steps: a tenth is 2.

    Text and seed move both runs of a round alike, by more than anything else; what is left moves
    each run, and each step, by itself.
    """
    text = random.normal(0, 0.3, (rounds, 1))
    rows = []
    for higher in (0, difference):
        run = random.normal(0, 0.04, (rounds, 1))
        steps = random.normal(0, 0.1, (rounds, 20))
        rows.append(as_row(5 + higher + text + run + steps))
    return rows


def share_found(rounds, difference=0.0, climbs=3000) -> float:
    """In how many of these climbs the interval excludes zero."""
    random = np.random.default_rng(51)
    found = 0
    for _ in range(climbs):
        change = loss_change(*simulated(random, rounds, difference))
        found += change.low > 0 or change.high < 0
    return found / climbs


@pytest.mark.parametrize("rounds", [4, 10])
def test_of_identical_pairs_one_interval_in_twenty_excludes_zero(rounds):
    assert 0.04 < share_found(rounds) < 0.06


@pytest.mark.parametrize("rounds", [4, 10])
def test_a_known_difference_is_found_as_often_as_student_s_test_finds_it(rounds):
    difference = 0.15
    limit = student.ppf(0.975, rounds - 1)
    shift = difference / SPREAD * np.sqrt(rounds)
    power = nct.sf(limit, rounds - 1, shift) + nct.cdf(-limit, rounds - 1, shift)
    assert share_found(rounds, difference, 1500) == pytest.approx(power, abs=0.04)


def test_the_same_losses_in_all_rounds_are_no_difference():
    """As of rungs that are identical bit for bit: their spread is zero."""
    same = mean_of([0.0, 0.0, 0.0])
    assert (same.value, same.low, same.high, same.p) == (0, 0, 0, 1)


def test_a_difference_below_three_rounds_has_no_interval():
    assert mean_of([0.5, 0.7]).value == pytest.approx(0.6)
    assert mean_of([0.5, 0.7]).low is None


# ------------------------------------------------------------------ one run


def test_the_end_is_the_last_tenth_of_the_steps():
    assert end_loss(as_log([9.0] * 90 + [5.0, 7.0] * 5)) == pytest.approx(6)
    assert end_loss(as_log([9.0] * 180 + [6.0] * 20)) == pytest.approx(6)


def test_steps_to_a_loss_by_hand():
    """A step down at step 51: the mean over ten steps is 9 at step 50, 8 at 51 … and -1 at 60."""
    log = as_log([9.0] * 50 + [-1.0] * 50)
    assert steps_to(9.001, log) == 10  # of the first mean, which ends with step 10
    assert steps_to(8.001, log) == 51
    assert steps_to(4.001, log) == 55
    assert steps_to(-0.999, log) == 60
    assert steps_to(-1.001, log) == np.inf


# ------------------------------------------------------------------ a climb


@pytest.fixture
def three(tmp_path):
    """01 ends as low as the baseline, in steps of half the time; 02 is down to that 40 steps sooner
    at the same speed and ends 0.4 lower; 03 ends above both."""
    losses = {
        "baseline.py": falling(6.0),
        "speedups/01_weight_tying.py": falling(6.0),
        "speedups/02_tf32.py": falling(5.6),
        "speedups/03_bf16_autocast.py": falling(6.1),
    }
    losses["speedups/02_tf32.py"] += SPREAD_BY_ROUND
    losses["speedups/03_bf16_autocast.py"] -= SPREAD_BY_ROUND
    return climb_in(tmp_path / "climb", losses, ms=[10, 5, 5, 5])


def test_a_climb_of_100_steps_has_the_three_numbers(three):
    climb, (baseline, tied, lower, higher) = read_climb(three)
    assert baseline.loss == tied.loss == pytest.approx(6.045)
    assert baseline.loss_change is None and baseline.time_to_loss is None
    assert tied.loss_change.value == 0 and not tied.loss_change.significant
    assert tied.time_to_loss.ratio == pytest.approx(0.5, rel=0.01)
    assert lower.loss_change.value == pytest.approx(-0.4)
    assert lower.loss_change.significant and lower.loss_change.high < 0
    assert lower.time_to_loss.ratio == pytest.approx(0.5 * 60 / 100, rel=0.01)
    assert (higher.time_to_loss, higher.rounds_above) == (None, 3)
    table = tables.markdown(climb, [baseline, tied, lower, higher])
    header, _, *lines = [line.split(" | ") for line in table.splitlines() if line[:1] == "|"]
    assert header[1:4] == ["loss", "loss vs. previous, nats", "time to the loss of 00 baseline"]
    assert lines[0][1:4] == ["6.0450", "–", "–"]
    assert lines[1][1:4] == ["6.0450", "+0.000 (+0.000 … +0.000)", "**0.50× (0.50 … 0.50)**"]
    assert lines[2][2] == "**−0.400 (−0.402 … −0.398)**" and lines[2][3].startswith("**0.30× (")
    assert lines[3][3] == "not reached (3 of 3)"


def test_one_round_above_is_enough_for_not_reached(tmp_path):
    """The mean of the two others would say that 01 is twice as fast to that loss."""
    above = falling(5.0)
    above[1] += 1.01
    losses = {"baseline.py": falling(6.0), "speedups/01_weight_tying.py": above}
    _, rows = read_climb(climb_in(tmp_path / "climb", losses))
    assert rows[1].time_to_loss is None
    assert tables.cells(rows[1])["time_to_loss"].text == "not reached (1 of 3)"


def test_a_row_is_timed_as_the_first_one_is(tmp_path):
    """The running mean of both is at its end after 60 steps: a copy does not take half the time."""
    flat = np.concatenate([falling(6.0, steps=50), np.full((3, 50), 6.0)], axis=1)
    losses = {"baseline.py": flat, "speedups/01_weight_tying.py": flat}
    _, rows = read_climb(climb_in(tmp_path / "climb", losses))
    assert rows[1].time_to_loss.ratio == pytest.approx(1)


def test_below_100_steps_there_are_none(tmp_path):
    losses = {"baseline.py": falling(6.0, 99), "speedups/01_weight_tying.py": falling(5.0, 99)}
    climb, rows = read_climb(climb_in(tmp_path / "climb", losses))
    assert rows[1].loss is rows[1].loss_change is rows[1].time_to_loss is None
    assert "loss_change" not in tables.columns(climb, rows)


def test_with_a_rung_left_out_the_top_one_is_compared_with_the_rest(tmp_path):
    losses = {"speedups/10_fused_adamw.py": falling(6.0), "without_08_x.py": falling(6.2)}
    losses["without_08_x.py"] += SPREAD_BY_ROUND
    _, rows = read_climb(climb_in(tmp_path / "climb", losses, kind="ablate"))
    assert rows[1].loss_change.value == pytest.approx(-0.2)  # the top's is lower


def test_batch_sizes_and_other_libraries_have_no_losses_to_compare(tmp_path):
    losses = {"peers/transformers_compiled.py": falling(6.0), "baseline.py": falling(5.0)}
    climb, rows = read_climb(climb_in(tmp_path / "climb", losses, kind="peers"))
    assert rows[1].loss is None and "loss" not in tables.columns(climb, rows)


@pytest.mark.parametrize(("epoch", "read_twice"), [("99.9", True), ("100", False), ("50", True)])
def test_a_note_says_that_text_was_read_twice(tmp_path, epoch, read_twice):
    losses = {"baseline.py": falling(6.0), "speedups/01_weight_tying.py": falling(6.0)}
    folder = climb_in(tmp_path / "climb", losses, epoch_batches=epoch)
    notes = " ".join(tables.footnotes(*read_climb(folder)))
    assert (f"The text ends after {epoch} steps" in notes) == read_twice


@pytest.mark.parametrize("width", [80, 160])
def test_the_three_numbers_are_on_the_narrowest_screen(three, width):
    text = " ".join(on_screen(three, width).split())
    for shown in ("6.0450", "−0.400 (−0.402 … −0.398)", "0.30×", "not reached (3 of 3)"):
        assert shown in text


def test_why_a_row_failed_is_short_on_screen(three):
    for path in three.glob("01_weight_tying.r*.log"):
        path.unlink()
    climb = Climb.load_from(three)
    climb.failures = {"01_weight_tying.r1": "a very long reason: why"}
    climb.save_to(three)
    text = on_screen(three, 160)
    assert "failed" in text and "very long" not in text


def test_the_page_has_a_band_for_each_curve_and_a_bar_for_each_time(three):
    section = gather(three) | {"ablation": None}
    html = page([section], made="")
    assert len(re.findall("<polygon data-curve", html)) == 3 * 4  # axes, rungs
    bars = html.split('class="ladder times"')[1].split("<h3>")[0]
    widths = re.findall(r'class="bar" style="width:([\d.]+)%', bars)
    assert [float(width) for width in widths] == pytest.approx([50, 25, 15], abs=0.2)  # of 2×
    assert "not reached (3 of 3)" in bars
    band = re.findall(r'<polygon[^>]*data-curve="2"[^>]*points="([^"]*)"', html)[0]
    points = [float(point.split(",")[1]) for point in band.split()]
    lowest, highest = points[:91], points[:90:-1]
    assert len(points) == 182
    assert all(low > high for low, high in zip(lowest, highest, strict=True))  # y is downwards


# ------------------------------------------------------------------ what is published


def test_of_another_model_or_text_only_long_climbs_are_published(tmp_path):
    pair = {"baseline.py": falling(6.0), "speedups/01_weight_tying.py": falling(5.0)}
    pair["baseline.py"] += SPREAD_BY_ROUND
    short = {name: losses[:, -99:] for name, losses in pair.items()}
    read_publishable(climb_in(tmp_path / "long", pair, model="tiny"))
    read_publishable(climb_in(tmp_path / "text", pair, data="kjv", data_sha256="0"))
    for name, run in {"model": {"model": "tiny"}, "data": {"data_sha256": "0"}}.items():
        with pytest.raises(BadInput, match="below 100 steps only gpt2 on tinyshakespeare"):
            read_publishable(climb_in(tmp_path / name, short, **run))


def test_such_a_climb_is_marked_and_not_for_readme(tmp_path, monkeypatch):
    project = tmp_path / "project"
    (project / "logs").mkdir(parents=True)
    for name in ("README.md", "RUNLOG.md"):
        (project / name).write_text((ROOT / name).read_text())
    for path in (ROOT / "logs").iterdir():
        (project / "logs" / path.name).symlink_to(path)
    monkeypatch.setattr(publish, "ROOT", project)
    monkeypatch.setattr(blocks, "ROOT", project)
    names = [path.relative_to(ROOT).as_posix() for path in publish.rungs()]
    losses = {name: falling(6.0) for name in names}
    folder = climb_in(tmp_path / "climb", losses, model="tiny")
    before = (project / "README.md").read_text()
    with pytest.raises(BadInput, match="shows the speed of gpt2 on tinyshakespeare, not of tiny"):
        publish.publish(folder, "It ends lower.", in_readme=True)
    assert (project / "README.md").read_text() == before
    publish.publish(folder, "It ends lower.")
    runlog = (project / "RUNLOG.md").read_text()
    heading = "## 2026-12-24: CPU: the climb, tiny on tinyshakespeare (86c4e6aa9db7)\n"
    assert heading in runlog and "time to the loss of 00 baseline" in runlog
    machines = runlog.split("<!-- machines -->")[1].split("<!-- end -->")[0]
    assert "CPU" not in machines  # it is of speeds


def test_readme_s_own_setting_has_no_mark():
    usual = {"model": "gpt2", "data": "tinyshakespeare", "data_sha256": "86c4e6aa9db7"}
    assert other_setting(usual) == ""
    assert other_setting(usual | {"model": "tiny"}) == "tiny on tinyshakespeare (86c4e6aa9db7)"


# ------------------------------------------------------------------ in earnest


@pytest.mark.slow
def test_ladder_climb_prints_the_three_numbers(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = "climb 3 4 --model tiny --batch-size 2 --seq-len 16 --steps 100 --rounds 3"
    assert main.main([*command.split(), "--device=cpu", "--out=climb"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    loss = r"04 residual scaling \d+\.\d{4} [+−]\d\.\d{3} \([+−]\d\.\d{3} … [+−]\d\.\d{3}\)"
    assert re.search(rf"{loss} (not reached \(\d of 3\)|\d\.\d\d× \()", shown)
    rows = read_climb(tmp_path / "climb")[1]
    seeds = [[log.run["seed"] for log in row.logs.values()] for row in rows]
    assert seeds == [["1337", "1338", "1339"]] * 2
