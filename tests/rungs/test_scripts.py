"""What holds for every script: its docstring, its note, and a run on a GPU that is not here."""

import pytest
import torch
from helpers import SCRIPTS, load, rung

from ladder.log import read_log
from ladder.measure.notes import describe, docstring, page_of, sections, title
from ladder.measure.scripts import DDP, FSDP, all_scripts, base_of

DOCUMENTED = [*all_scripts(), DDP, FSDP]


@pytest.mark.parametrize("path", DOCUMENTED, ids=lambda path: path.stem)
def test_docstring_lists_what_the_script_has(path):
    """The list of the script before it, and one line, whose name is that of its note."""
    first, lines, *_, last = docstring(path).split("\n\n")
    assert (first, last) == ("GPT-2 (124M), trained with:", docstring(rung(0)).split("\n\n")[-1])
    base = base_of(path)
    before = docstring(base).split("\n\n")[1].splitlines() if base else []
    assert lines.splitlines()[: len(before)] == before
    if path.stem[:2].isdecimal():
        assert len(lines.splitlines()) == len(before) + 1
    assert f"## [{title(path)}](" in page_of(path).read_text()


def test_each_script_has_its_note_in_order():
    assert [*sections()] == [path.stem for path in sorted(DOCUMENTED, key=page_of)]
    for path in DOCUMENTED:
        assert describe(path), f"{path.stem} has no note"


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
