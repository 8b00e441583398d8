"""What holds for every script: its docstring, and a run on a GPU that is not here."""

import pytest
import torch
from helpers import SCRIPTS, load, rung, write_shard

from ladder.corpus import read_shard
from ladder.files import ROOT
from ladder.log import read_log
from ladder.measure.docstrings import describe, title


@pytest.mark.parametrize("number", SCRIPTS)
def test_docstring_has_its_fields(number):
    path = rung(number)
    fields = describe(path)
    assert title(path).startswith(f"{number:02d} ")
    assert fields["Run"] == f"python {path.relative_to(ROOT).as_posix()}"


@pytest.mark.parametrize("number", SCRIPTS)
def test_every_script_on_a_t4(number, card, shard, tmp_path, monkeypatch):
    card("T4")

    def stop(_):  # at the first step: nothing is on the device then but the model
        raise KeyboardInterrupt

    monkeypatch.setattr(torch.nn.Module, "to", lambda model, _: model)
    monkeypatch.setattr(torch.accelerator, "synchronize", stop)
    flags = ["--model=tiny", f"--data={shard}", f"--log-dir={tmp_path}"]
    with pytest.raises(SystemExit) as end:
        load(rung(number)).main(flags)
    assert end.value.code == 130
    log = read_log(next(tmp_path.glob("*.log")))
    assert (log.run["device"], log.run["B"], log.run["T"]) == ("Tesla T4", "8", "1024")
    assert log.result.get("loss_scale") == (65536 if number >= 3 else None)


def test_the_baseline_overfits_one_batch(run_main, shard, tmp_path, monkeypatch):
    """As docs/measuring.md tells to try, with a rate that takes fewer steps."""
    one_batch = tmp_path / "batch.bin"
    write_shard(one_batch, read_shard(shard)[: 2 * 64 + 1])  # B=2, T=64 and the last target
    baseline = load(rung(0))
    monkeypatch.setattr(baseline, "LEARNING_RATE", 5e-3)
    log = run_main(baseline, "--data", one_batch, "--steps", 40)
    assert log.run["epoch_batches"] == "1"
    assert log.result["final_loss"] < 0.1
