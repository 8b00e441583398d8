"""What holds for every script: its docstring, and a run on a GPU that is not here."""

import pytest
import torch
from helpers import SCRIPTS, load, rung

from ladder.files import ROOT
from ladder.log import read_log
from ladder.measure.docstrings import describe


@pytest.mark.parametrize("number", SCRIPTS)
def test_docstring_has_its_fields(number):
    path = rung(number)
    fields = describe(path)
    assert fields["Title"].startswith(f"{number:02d} ")
    assert fields["Run"] == f"python {path.relative_to(ROOT).as_posix()}"


@pytest.mark.parametrize("number", SCRIPTS)
def test_every_script_on_a_t4(number, card, shard, tmp_path, monkeypatch, capsys):
    card("T4")

    def stop(_):  # at the first step: nothing is on the device then but the model
        raise KeyboardInterrupt

    monkeypatch.setattr(torch.nn.Module, "to", lambda model, _: model)
    monkeypatch.setattr(torch.accelerator, "synchronize", stop)
    flags = ["--model=tiny", f"--data={shard}", f"--log-dir={tmp_path}"]
    with pytest.raises(SystemExit) as end:
        load(rung(number)).main(flags)
    if number >= 14:
        units, other = ("FP8", 18) if number == 19 else ("bfloat16", 13)
        said = capsys.readouterr().err
        assert end.value.code == 2 and f"error Tesla T4 has no {units} units" in said
        assert f"run candidate {other} here" in said
        return
    assert end.value.code == 130
    log = read_log(next(tmp_path.glob("*.log")))
    found = {key: log.run[key] for key in ("device", "B", "T", "steps")}
    assert found == {"device": "Tesla T4", "B": "8", "T": "1024", "steps": "50"}
    assert log.result.get("loss_scale") == (65536 if number >= 3 else None)
