"""ddp_run.py: what rung 10 trains, on several ranks."""

import signal

import pytest
import torch
from helpers import SMALL, load, run_script, rung
from jobs import finish, last_log
from models import losses_of, uncompiled

from ladder.checkout import ROOT

PLAIN = "torch.compile = lambda model: model; script.half_precision = lambda _: torch.float32"
NOTHING = f"{PLAIN}\ndef at(step): pass"
STOPS = f"""{PLAIN}
def at(step):
    if (step, RANK) == (2, 1): os.kill(os.getpid(), signal.SIGINT)"""


@pytest.fixture(scope="module")
def script():
    return "ddp_run.py"


def flags(shard, folder, B, steps=4):
    words = [*SMALL, "--batch-size", B, "--steps", steps, "--data", shard, "--log-dir", folder]
    return [str(word) for word in words]


def test_two_ranks_train_as_rung_10_with_twice_the_rows(job, shard, smaller, tmp_path, monkeypatch):
    finish(job(tmp_path, words=flags(shard, tmp_path / "runs", 2), code=NOTHING))
    log = last_log(tmp_path)
    assert (log.run["ranks"], log.run["total_batch"], log.step_tokens) == ("2", "256", 256)
    seconds = log.result["median_ms"] / 1e3
    assert log.result["tok_per_s"] == pytest.approx(256 / seconds)
    monkeypatch.setattr(torch, "compile", uncompiled)
    module = load(rung(10))
    monkeypatch.setattr(module, "half_precision", lambda _: torch.float32)
    module.main(flags(shard, tmp_path / "alone" / "runs", 4))
    assert losses_of(log) == pytest.approx(losses_of(last_log(tmp_path / "alone")), abs=1e-5)


def test_ctrl_c_on_one_rank_stops_all_after_the_same_step(job, shard, tmp_path):
    words = flags(shard, tmp_path / "runs", 2, steps=50)
    _, err = finish(job(tmp_path, words=words, code=STOPS), status=1)  # torchrun: a rank failed
    assert "SIGINT: stopped after step 3; no checkpoint is kept" in err
    log = last_log(tmp_path)
    assert (log.result["status"], len(log.steps)) == ("stopped", 3)
    assert f"exitcode  : {128 + signal.SIGINT}" in err


def test_a_wrong_flag_is_told_once(job, shard, tmp_path):
    words = [*flags(shard, tmp_path / "runs", 2), "--step", "4"]
    _, err = finish(job(tmp_path, words=[*words, "--batchsize=2"], code=NOTHING), status=1)
    assert err.count("\nerror ") + err.startswith("error ") == 1


def test_without_torchrun_it_names_the_command():
    done = run_script(ROOT / "ddp_run.py", *SMALL)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "torchrun --standalone --nproc_per_node=2 ddp_run.py" in line
