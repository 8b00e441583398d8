"""What holds for every script: its docstring, and a run on a GPU that is not here."""

import pytest
import torch
from helpers import SCRIPTS, load, rung

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
