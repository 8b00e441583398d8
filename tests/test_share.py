"""`ladder share`, and `ladder publish` of the file that it writes."""
# ruff: noqa: F811 (a fixture of test_publish.py)

import gzip
import json
import re
import shutil

import pytest
from test_publish import CLIMB, change, edit, project, state  # noqa: F401

from ladder.commands.main import main
from ladder.files import git
from ladder.measure.rows import read_climb

XEON = "Intel(R) Xeon(R) CPU @ 2.20GHz (8 threads)"


@pytest.fixture
def climbed(tmp_path):
    """A stranger's climb at a commit of this project, with all that could give them away."""
    folder = shutil.copytree(CLIMB, tmp_path / "alice")
    edit(folder, "34a7763c18e6", git("rev-parse", "--short=12", "HEAD").stdout.strip())
    edit(folder, "AMD EPYC (2 threads)", XEON)
    why = {"02_tf32.r3": "OSError: /home/alice/x", "12_causal_blocks.r3": "out of memory: …"}
    for name in why:
        (folder / f"{name}.log").unlink()
    change(folder, started="2026-12-24 10:00", failures=why, host="alices-laptop")
    with (folder / "baseline.r1.log").open("a") as log:
        log.write("note  by alice\n")
    return folder


def refused(words, capsys) -> str:
    """The one line that a command says when it refuses."""
    capsys.readouterr()
    assert main([str(word) for word in words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_a_shared_climb_has_numbers_and_names_nobody(climbed, capsys):
    assert main(["share", str(climbed)]) == 0
    out = climbed.parent / "alice.json.gz"
    assert f"ladder publish {out}" in capsys.readouterr().out and out.stat().st_size < 20_000
    found = json.loads(gzip.decompress(out.read_bytes()))
    assert not re.search("alice|/home|note|OSError", json.dumps(found))
    assert found["failures"] == {"02_tf32.r3": "it failed", "12_causal_blocks.r3": "out of memory"}
    assert "is there already: choose another --out" in refused(["share", climbed], capsys)


def test_a_name_that_is_no_device_is_not_shared(climbed, capsys):
    edit(climbed, "Intel(R)", "Alice's")
    assert "$.device: \"Alice's" in refused(["share", climbed], capsys)
    assert not list(climbed.parent.glob("*.gz"))


def test_a_script_that_is_no_rung_is_not_shared(climbed, capsys):
    edit(climbed, '"speedups/12_causal_blocks.py"', '"mine.py"')
    for path in climbed.glob("12_causal_blocks.*"):
        path.rename(path.with_name(path.name.replace("12_causal_blocks", "mine")))
    assert "$.scripts[12]: 'mine.py'" in refused(["share", climbed], capsys)


def test_the_logs_of_a_shared_climb_are_made_by_us_and_say_the_same(project, climbed, tmp_path):
    copy = project[0]
    out = tmp_path / "x.json.gz"
    assert main(["share", str(climbed), "--out", str(out)]) == 0
    assert main(["publish", str(out), "A machine of somebody else."]) == 0
    page = (copy / "RUNLOG.md").read_text()
    assert f"| {XEON}, B=4, T=256 | 2.13.0+cpu | 0.973 | 3 | 204 |" in page
    (made,) = copy.glob("logs/2026-12-24-*")
    ours, our_rows = read_climb(made)
    theirs, their_rows = read_climb(climbed)
    for key in ("started", "versions", "clocks", "system", "cores", "device", "peak_flops"):
        assert ours[key] == theirs[key]
    assert ours["scripts"] == theirs["scripts"]
    for our_row, their_row in zip(our_rows, their_rows, strict=True):
        assert our_row.logs.keys() == their_row.logs.keys()
        for k, log in our_row.logs.items():
            same_log(log, their_row.logs[k])


def same_log(log, original):
    """Assert that a log made from shared numbers says what the original does."""
    assert log.run.items() <= original.run.items()
    assert (log.mfu, log.effective) == (original.mfu, original.effective)
    for step, was in zip(log.steps, original.steps, strict=True):
        assert step["tok_per_s"] == pytest.approx(was["tok_per_s"], abs=1)  # dt had more decimals
        assert (step["step"], step["loss"], step["dt"]) == (was["step"], was["loss"], was["dt"])
    for key, value in original.result.items():
        if type(value) is float:  # their milliseconds had three decimals
            value = pytest.approx(value, abs=0.06, rel=1e-6)
        assert log.result[key] == value, key


@pytest.mark.parametrize(
    ("keys", "value", "why"),
    [
        (["host"], "alice", "$: Additional properties are not allowed ('host'"),
        (["device"], "<b>", "$.device: '<b>'"),
        (["commit"], "0123456789ab", "no commit 0123456789ab: git fetch"),
        (["runs", "../x.r1"], {}, "$.runs: '../x.r1'"),
        (["runs", "baseline.r1", "dt"], [1.0], "or damaged"),
        (["runs", "baseline.r1", "dt"], [float("nan")] * 7, "NaN is no number"),
        (["runs", "baseline.r1", "dt"], [-1.0] * 7, "$.runs['baseline.r1'].dt[0]: -1.0 is less"),
        (["steps"], 7.0, "$.steps: 7.0 is not of type 'integer'"),
        (["device"], "A\n", r"$.device: 'A\n' does not match"),
    ],
)
def test_a_shared_climb_of_another_form_is_refused(
    project, climbed, tmp_path, capsys, keys, value, why
):
    out = tmp_path / "x.json.gz"
    assert main(["share", str(climbed), "--out", str(out)]) == 0
    found = json.loads(gzip.decompress(out.read_bytes()))
    before = state(project[0])
    place = found
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    out.write_bytes(gzip.compress(json.dumps(found).encode()))
    line = refused(["publish", out, "No."], capsys)
    assert why in line and len(line) < 300, line
    assert state(project[0]) == before


@pytest.mark.parametrize(
    "content",
    [b"not an archive", gzip.compress(b"{}")[:-4], gzip.compress(bytes(2**24))[:-8]],
    ids=["no archive", "cut short", "too large to be read to its end"],
)
def test_a_damaged_file_is_refused(content, tmp_path, capsys):
    path = tmp_path / "x.json.gz"
    path.write_bytes(content)
    line = refused(["publish", path, "No."], capsys)
    assert f"{path} is not a file of ladder share, or damaged: " in line
