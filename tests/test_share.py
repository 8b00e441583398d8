"""`ladder share`, and `ladder publish` of the file that it writes."""
# ruff: noqa: F811 (fixtures of test_publish.py)

import gzip
import json
import os
import re
import shutil

import pytest
from conftest import ROOT
from test_publish import CLIMB, change, edit, project, state  # noqa: F401

from ladder.commands import main, share
from ladder.files import git


@pytest.fixture
def climbed(tmp_path):
    """A stranger's climb at a commit of this project, with all that could give them away."""
    folder = shutil.copytree(CLIMB, tmp_path / "alice")
    head = git("rev-parse", "--short=12", "HEAD").stdout.strip()
    edit(folder, "34a7763c18e6", head)
    edit(folder, "AMD EPYC (2 threads)", "Intel(R) Xeon(R) CPU @ 2.20GHz (8 threads)")
    why = {
        "02_tf32.r3": "PermissionError: /home/alice/x",
        "12_causal_blocks.r3": "out of memory: …",
    }
    for name in why:
        (folder / f"{name}.log").unlink()
        (folder / f"{name}.failed").write_text("Traceback: /home/alice/ladder/x.py\n")
    change(folder, started="2026-12-24 10:00", failures=why, host="alices-laptop", loads=[0.1, 0.2])
    with (folder / "baseline.r1.log").open("a") as log:
        log.write("note  could not save it (/home/alice): the next run downloads it again\n")
    (folder / "mine.py").write_text("# by alice\n")
    return folder


def shared(folder, out):
    """The file that is made of a climb, and what is in it by name."""
    assert main(["share", str(folder), "--out", str(out)]) == 0
    return out, json.loads(gzip.decompress(out.read_bytes()))


def test_the_file_lies_beside_the_folder_also_from_within(climbed, monkeypatch):
    monkeypatch.chdir(climbed)
    before = os.listdir(climbed)
    assert main(["share", "."]) == 0
    assert os.listdir(climbed) == before and [*climbed.parent.glob("*.json.gz")]


def refused(words, capsys):
    """The one line that a command says when it refuses."""
    capsys.readouterr()
    assert main([str(word) for word in words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_what_is_shared_is_small_names_nobody_and_has_all_numbers(climbed, tmp_path, capsys):
    out, files = shared(climbed, tmp_path / "x.json.gz")
    assert f"ladder publish {out}" in capsys.readouterr().out and out.stat().st_size < 20_000
    for word in ("alice", "/home", "note"):
        assert word not in str(files)
    facts = json.loads(files["climb.json"])
    assert facts["failures"] == {"02_tf32.r3": "it failed", "12_causal_blocks.r3": "out of memory"}
    assert "host" not in facts and facts["loads"] == [0.1, 0.2]
    assert files.keys() == {"climb.json"} | {path.name for path in climbed.glob("*.log")}
    for name in files.keys() - {"climb.json"}:
        lines = (climbed / name).read_text().splitlines()
        assert files[name].splitlines() == [line for line in lines if not line.startswith("note")]
    before = out.read_bytes()
    shared(climbed, out)
    assert out.read_bytes() == before, "the same climb gives the same file"


def test_where_the_file_is_written(climbed, tmp_path, monkeypatch, capsys):
    assert main(["share", str(climbed)]) == 0
    name = "2026-12-24-intel-r-xeon-r-cpu-2-20ghz-8-threads-climb.json.gz"
    assert (climbed.parent / name).exists()
    change(climbed, cores=8)
    assert "is there already: choose another --out" in refused(["share", climbed], capsys)
    os.mkfifo(tmp_path / "fifo")
    words = ["share", climbed, "--out", tmp_path / "fifo"]
    assert "fifo is not a regular file" in refused(words, capsys)
    monkeypatch.setattr(share, "PACKED", 3_000)
    assert "is too large to share" in refused(["share", climbed], capsys)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"data": null', '"data": "/home/alice/letters"', "other text than tinyshakespeare"),
        ("Intel(R)", "Alice's", "such characters are not published"),
        ('"failures": {', '"failures": {"alices.r1": "", ', "climb.json asks for: alices.r1"),
        (" ms | tok/s", " ms | home 3 | tok/s", "its step line is not of"),
    ],
)
def test_what_names_somebody_is_not_shared(climbed, capsys, old, new, message):
    edit(climbed, old, new)
    assert message in refused(["share", climbed], capsys)
    assert not list(climbed.parent.glob("*.gz"))


def test_scripts_of_ones_own_are_not_shared(capsys):
    climb = ROOT / "logs" / "2026-11-21-amd-epyc-2-threads-beyond-negative"
    assert "13_sigmoid_gelu.py' is a script of your own" in refused(["share", climb], capsys)


def test_a_folder_of_an_ablation_is_not_named(tmp_path):
    """The script of such a run is made in the folder of the climb: alice/without_….py."""
    source = ROOT / "logs" / "2026-11-21-amd-epyc-2-threads-ablate-2"
    folder = shutil.copytree(source, tmp_path / "alice")
    for path in folder.glob("without*.log"):
        text = re.sub(r"script=(\S+)", r'script="alices runs/\1"', path.read_text())
        path.write_text(text.replace('"script": "', '"script": "alices runs/'))
    _, files = shared(folder, tmp_path / "x.json.gz")
    assert "alice" not in str(files)
    name = "without_02_tf32.r1.log"
    assert files[name] == (source / name).read_text()


def test_a_climb_of_a_negative_seed_is_shared(climbed, tmp_path):
    edit(climbed, " seed=1337", " seed=-1")
    assert " seed=-1 " in shared(climbed, tmp_path / "x.json.gz")[1]["baseline.r1.log"]


def packed(files) -> bytes:
    return gzip.compress(json.dumps(files).encode())


# What comes instead of the bytes of a good file, and what is said of it.
LEFT_OUT = "it holds what ladder share leaves out"
ARCHIVES = [
    (lambda _: b"not an archive\n", "gzipped"),
    (lambda _: b"", "Expecting value"),
    (lambda files: packed(files)[:-200], "ended before"),
    (lambda files: packed(files)[:-8] + b"12345678", "CRC"),
    (lambda _: gzip.compress(b"\xff\xff"), "utf-8"),
    # A bomb, without its end: it is not read that far.
    (lambda _: gzip.compress(bytes(2**24))[:-8], "it is too large"),
    (lambda _: gzip.compress(b"[" * 100_000), "recursion|too large, or holds no climb"),
    (lambda _: packed(["climb.json"]), "holds no climb"),
    (lambda files: packed({**files, "baseline.r1.log": 3}), "it holds 'baseline.r1.log'"),
    (lambda files: packed({**files, "baseline.r1.log": "\udcff"}), "surrogates"),
    (lambda files: packed({**files, "a.r1.log": ""}), "a.r1.log is not a log of this ladder"),
    (lambda files: packed({**files, **{f"a{i}.r1.log": "" for i in range(1000)}}), "too large"),
]
ARCHIVES += [
    (lambda files, name=name: packed({**files, name: ""}), "it holds '")
    for name in (
        "/tmp/pwned.r1.log",
        "../pwned.r1.log",
        "mine.py",
        "a\n.r1.log",
        "a" * 300 + ".r1.log",
    )
]
# What climb.json has or is instead, and what is said of it.
FACTS = [
    ("[" * 100_000, "climb.json"),
    ({"loads": float("nan")}, LEFT_OUT),
    ({"repeats": float("nan")}, "repeats=nan is not as"),
    ({"kind": "x/../../pwned"}, "kind=.* is not as"),
    ({"started": "/../pwned"}, "started=.* is not as"),
    ({"commit": "0123456789ab"}, "0123456789ab, which this checkout lacks"),
    ({"device": "a|b"}, r"climb.json is of 'a\|b'"),
    ({"scripts": ["../../pwned.py"]}, "pwned.py' is a script of your own"),
    ({"scripts": ["a\0.py"]}, "scripts=.* is not as"),
    ({"scripts": [f"speedups/{k}_x.py" for k in range(501)]}, "scripts=.* is not as"),
    ({"clocks": {"before": "<script>", "after": ""}}, "clocks=.* is not as"),
    ({"host": "alice"}, LEFT_OUT),
    ({"flags": ["--batch=64"]}, "flags=.* is not as"),  # a script takes it for --batch-size
    ({"failures": {"of alice.r1": "it failed"}}, LEFT_OUT),
    ({"copy_bytes_per_s": "x"}, "copy_bytes_per_s='x' is not as"),
    ({"copy_bytes_per_s": 10**10}, "a matmul's rate is missing"),
]
# A part of baseline's logs, what it becomes, and what is said of it.
LOGS = [
    ("RESULT", "note  hello\nRESULT", LEFT_OUT),
    ("\n", "\r\n", "its run line is not of"),
    ('device="', 'device="<b>', "its run line is not of"),
    (" B=4 ", " host=alice B=4 ", "its run line is not of"),
    ("\nstep    2", "\x85\nstep    2", "its step line is not of"),
    ("compiled=no", "compiled=no\u2028step", "its effective line is not of"),
    ("script=baseline.py", "script=mine.py", LEFT_OUT),
]


def test_hostile_files_are_refused(project, climbed, tmp_path, capsys):
    """With one line that names the file, and nothing is written. What a log may hold is tested with
    what is not fit to be published."""
    _, good = shared(climbed, tmp_path / "good.json.gz")
    hostile, before = tmp_path / "hostile.json.gz", state(project[0])
    cases = [(make(good), message) for make, message in ARCHIVES]
    for facts, message in FACTS:
        if not isinstance(facts, str):
            facts = json.dumps({**json.loads(good["climb.json"]), **facts}, indent=1) + "\n"
        cases.append((packed({**good, "climb.json": facts}), message))
    for old, new, message in LOGS:
        assert old in good["baseline.r1.log"]
        logs = {name: text.replace(old, new) for name, text in good.items() if "base" in name}
        cases.append((packed({**good, **logs}), message))
    hostile.touch()
    entries = sorted(tmp_path.iterdir())
    for content, message in cases:
        hostile.write_bytes(content)
        line = refused(["publish", hostile, "No."], capsys)
        assert re.search(message, line) and str(hostile) in line and len(line) < 400, line
    assert state(project[0]) == before and sorted(tmp_path.iterdir()) == entries
    hostile.unlink()
    for path in (hostile, "/dev/zero"):
        assert "holds no logs of a climb" in refused(["publish", path, "No."], capsys)
    os.mkfifo(hostile)
    assert "holds no logs of a climb" in refused(["publish", hostile, "No."], capsys)


def test_what_is_shared_can_be_published(project, climbed, tmp_path, capsys):
    """What the refusals are measured against: the same bytes, unchanged."""
    copy, (out, files) = project[0], shared(climbed, tmp_path / "good.json.gz")
    out.write_bytes(packed(files))
    assert main(["publish", str(out), "A machine of somebody else."]) == 0
    name = "logs/2026-12-24-intel-r-xeon-r-cpu-2-20ghz-8-threads-climb"
    assert "A machine of somebody else." in (copy / "RUNLOG.md").read_text()
    row = "| Intel(R) Xeon(R) CPU @ 2.20GHz (8 threads), B=4, T=256 | 2.13.0+cpu | 204 |"
    assert row in (copy / "README.md").read_text()
    assert (copy / name / "climb.png").read_bytes().startswith(b"\x89PNG")
    assert {file: (copy / name / file).read_text() for file in files} == files
    # The folder too is that climb, though its failures have more words.
    assert "is published already" in refused(["publish", climbed, "No."], capsys)


@pytest.mark.parametrize("word", ["script=1", "device=1"])
def test_a_run_line_is_read_in_one_way(word, project, climbed, tmp_path, capsys):
    """In two, forty such words took years."""
    out, files = shared(climbed, tmp_path / "x.json.gz")
    files["baseline.r1.log"] = "run  " + f" {word}" * 40 + " %\n"
    out.write_bytes(packed(files))
    assert "its run line is not of this ladder" in refused(["publish", out, "No."], capsys)


def test_a_script_that_its_commit_lacks_is_refused(project, climbed, tmp_path, capsys):
    edit(climbed, "speedups/12_causal_blocks.py", "speedups/13_free_lunch.py")
    for path in climbed.glob("12_*"):
        path.rename(climbed / path.name.replace("12_causal_blocks", "13_free_lunch"))
    change(climbed, failures={"13_free_lunch.r3": "out of memory", "02_tf32.r3": "it failed"})
    out, _ = shared(climbed, tmp_path / "x.json.gz")
    line = refused(["publish", out, "No."], capsys)
    assert "has speedups/13_free_lunch.py, which is not in commit" in line
