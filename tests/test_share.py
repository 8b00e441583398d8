"""`ladder share`, and `ladder publish` of the file that it writes."""
# ruff: noqa: F401, F811 (fixtures of test_publish.py)

import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile

import pytest
from conftest import ROOT
from test_publish import CLIMB, README, change, edit, no_picture, project, state

from ladder.commands import main, publish, share
from ladder.commands.results import read_facts
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
    change(folder, started="2026-12-24 10:00", failures=why, host="alices-laptop", load=[0.1, 0.2])
    with (folder / "baseline.r1.log").open("a") as log:
        log.write("note  could not save it (/home/alice): the next run downloads it again\n")
    (folder / "mine.py").write_text("# by alice\n")
    return folder


def shared(folder, out):
    assert main(["share", str(folder), "--out", str(out)]) == 0
    return out


def refused(words, capsys):
    """The one line that a command says when it refuses."""
    capsys.readouterr()
    assert main([str(word) for word in words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_what_is_shared_is_small_and_names_nobody(climbed, tmp_path, capsys):
    out = shared(climbed, tmp_path / "x.tar.gz")
    assert f"ladder publish {out}" in capsys.readouterr().out
    assert out.stat().st_size < 20_000
    raw = gzip.decompress(out.read_bytes())
    assert b"alice" not in raw and b"/home" not in raw and b"note" not in raw
    with tarfile.open(out) as tar:
        assert {(m.uid, m.gid, m.uname, m.mtime) for m in tar} == {(0, 0, "", 0)}
        names = set(tar.getnames())
        facts = json.load(tar.extractfile("climb.json"))
    assert names == {"climb.json"} | {path.name for path in climbed.glob("*.log")}
    assert facts["failures"] == {"02_tf32.r3": "it failed", "12_causal_blocks.r3": "out of memory"}
    assert "host" not in facts and facts["load"] == [0.1, 0.2]
    before = out.read_bytes()
    shared(climbed, out)
    assert out.read_bytes() == before, "the same climb gives the same file"


def test_numbers_are_those_that_were_measured(climbed, tmp_path):
    out = shared(climbed, tmp_path / "x.tar.gz")
    with tarfile.open(out) as tar:
        text = tar.extractfile("10_fused_adamw.r2.log").read().decode()
        cut = tar.extractfile("baseline.r1.log").read().decode()
    assert text == (climbed / "10_fused_adamw.r2.log").read_text()
    lines = (climbed / "baseline.r1.log").read_text().splitlines()
    assert cut.splitlines() == [line for line in lines if not line.startswith("note")]


def test_by_default_the_file_lies_beside_the_folder(climbed, capsys):
    assert main(["share", str(climbed)]) == 0
    name = "2026-12-24-intel-r-xeon-r-cpu-2-20ghz-8-threads-climb.tar.gz"
    assert (climbed.parent / name).exists()
    change(climbed, cores=8)
    assert "is there already: choose another --out" in refused(["share", climbed], capsys)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"scripts": [', '"scripts": ["mine.py", ', "mine.py is a script of your own"),
        ('"data": null', '"data": "/home/alice/letters"', "other text than tinyshakespeare"),
        (" data=tinyshakespeare ", " data=letters ", "other text than tinyshakespeare"),
        (" model=gpt2 ", " model=tiny ", "only gpt2"),
        ('"after"', '"before"', "was stopped"),
        ('"device": "Intel(R)', '"device": "Alice\'s', "device"),
        (
            'device="Intel(R)',
            "device=\"Alice's",
            "01_weight_tying.r1.log: its run line is not of",
        ),
        (" ms | tok/s", " ms | home 3 | tok/s", "its step line is not of"),
    ],
)
def test_what_is_not_fit_is_not_shared(climbed, capsys, old, new, message):
    edit(climbed, old, new)
    assert message in refused(["share", climbed], capsys)
    assert not list(climbed.parent.glob("*.tar.gz"))


def test_a_log_of_no_script_in_the_climb_is_not_shared(climbed, capsys):
    shutil.copy(climbed / "baseline.r1.log", climbed / "alices_idea.r1.log")
    assert "alices_idea.r1.log is of no script" in refused(["share", climbed], capsys)


def test_a_folder_of_an_ablation_is_not_named(tmp_path):
    """The script of such a run is made in the folder of the climb: alice/without_….py."""
    source = ROOT / "logs" / "2026-11-21-amd-epyc-2-threads-ablate-2"
    folder = shutil.copytree(source, tmp_path / "alice")
    for path in folder.glob("without*.log"):
        text = re.sub(r"script=(\S+)", r'script="alices runs/\1"', path.read_text())
        path.write_text(text.replace('"script": "', '"script": "alices runs/'))
    out = shared(folder, tmp_path / "x.tar.gz")
    assert b"alice" not in gzip.decompress(out.read_bytes())
    with tarfile.open(out) as tar:
        text = tar.extractfile("without_02_tf32.r1.log").read().decode()
    assert text == (source / "without_02_tf32.r1.log").read_text()


def test_share_and_publish_in_another_copy_of_the_project(climbed, tmp_path):
    """All that git tracks, in another folder, with a README that has the blocks."""
    copy = tmp_path / "copy"
    for name in git("ls-files", "-z").stdout.split("\0")[:-1]:
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    (copy / ".git").symlink_to(ROOT / ".git")
    (copy / "README.md").write_text(README)
    out = shared(climbed, tmp_path / "x.tar.gz")
    done = subprocess.run(
        [sys.executable, "-m", "ladder", "publish", out, "A machine of somebody else."],
        cwd=copy, env={**os.environ, "PYTHONPATH": str(copy)}, capture_output=True, text=True,
    )  # fmt: skip
    name = "logs/2026-12-24-intel-r-xeon-r-cpu-2-20ghz-8-threads-climb"
    assert f"published in {name}, README.md and RUNLOG.md" in done.stdout, done.stderr
    assert "A machine of somebody else." in (copy / "RUNLOG.md").read_text()
    row = "| Intel(R) Xeon(R) CPU @ 2.20GHz (8 threads), B=4, T=256 | 2.13.0+cpu | 210 |"
    assert row in (copy / "README.md").read_text()
    assert (copy / name / "climb.png").read_bytes().startswith(b"\x89PNG")
    with tarfile.open(out) as tar:
        for member in tar:
            assert (copy / name / member.name).read_bytes() == tar.extractfile(member).read()


def test_a_climb_of_a_commit_that_is_not_here_is_refused(project, climbed, tmp_path, capsys):
    copy, _ = project
    before = state(copy)
    edit(climbed, read_facts(climbed)["commit"], "0123456789ab")
    out = shared(climbed, tmp_path / "x.tar.gz")
    message = "climbed at 0123456789ab, which this checkout lacks"
    assert message in refused(["publish", out, "No."], capsys)
    assert state(copy) == before


def tar_of(members):
    """A .tar.gz of (name, content or type) pairs. Types are bytes, too."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if len(content) == 1:
                member.type, member.linkname = content, "/etc/passwd"
                tar.addfile(member)
            else:
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return gzip.compress(file.getvalue())


def sparse():
    """A file of four terabytes, all of it a hole."""
    member = tarfile.TarInfo("baseline.r1.log")
    member.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
    member.pax_headers |= {"GNU.sparse.name": member.name, "GNU.sparse.realsize": str(2**42)}
    content = b"1\n0\n0\n".ljust(512, b"\0")
    member.size = len(content)
    return gzip.compress(member.tobuf(tarfile.PAX_FORMAT) + content + bytes(1024))


def backwards():
    """A size of less than nothing, with which a reader could go round in circles."""
    member = tarfile.TarInfo("baseline.r1.log")
    member.pax_headers = {"size": "-512"}
    return gzip.compress(member.tobuf(tarfile.PAX_FORMAT) + bytes(1024))


# What is put behind the members of a good file, and what is said of it.
MEMBERS = {
    "absolute path": ("/tmp/pwned.r1.log", b"", "which is not a log"),
    "..": ("../pwned.r1.log", b"", "which is not a log"),
    "folder": ("a", tarfile.DIRTYPE, "which is not a log"),
    "symlink": ("a.r1.log", tarfile.SYMTYPE, "a link or a device"),
    "hardlink": ("a.r1.log", tarfile.LNKTYPE, "a link or a device"),
    "FIFO": ("a.r1.log", tarfile.FIFOTYPE, "a link or a device"),
    "device": ("a.r1.log", tarfile.CHRTYPE, "a link or a device"),
    "bomb": ("a.r1.log", bytes(2**24), "too large"),
    "script": ("mine.py", b"", "which is not a log"),
    "picture": ("climb.png", b"", "which is not a log"),
    "another log": ("a.r1.log", b"", "a.r1.log is not as"),
    "twice": ("climb.json", b"{}", "holds climb.json twice"),
    "control character": ("a\n.r1.log", b"", r"'a\\n.r1.log'"),
    "no UTF-8": ("\udcff.r1.log", b"", r"'\\udcff.r1.log'"),
    "long name": ("a" * 300 + ".r1.log", b"", "which is not a log"),
}
# What comes instead of a good file's bytes, and what is said of it.
FILES = {
    "sparse": (lambda _: sparse(), "a link or a device"),
    "backwards": (lambda _: backwards(), "holds baseline.r1.log twice"),
    "noise": (lambda _: os.urandom(1_000_000), "is not a file of ladder share"),
    "large": (lambda _: tar_of([("a.r1.log", os.urandom(1_000_001))]), "too large"),
    "too many": (
        lambda _: tar_of([(f"a{i // 999}.r{i % 999 + 1}.log", b"") for i in range(1001)]),
        "holds more than 1000 files",
    ),
    "text": (lambda _: b"not an archive\n", "is not a file of ladder share"),
    "empty": (lambda _: b"", "is not a file of ladder share"),
    "zip": (lambda _: b"PK\x03\x04" + bytes(100), "is not a file of ladder share"),
    "truncated": (lambda good: good[:-200], "is not a file of ladder share"),
    "cut inside": (
        lambda good: gzip.compress(gzip.decompress(good)[:5000]),
        "is not a file of ladder share",
    ),
    "changed": (lambda good: good[:-8] + b"12345678", "is not a file of ladder share"),
    "no members": (lambda _: tar_of([]), "holds no climb.json"),
}
# What climb.json is instead, or has besides, and what is said of it.
FACTS = {
    "list": ("[]", "its outermost value is not as"),
    "number": ("33", "its outermost value is not as"),
    "empty": ("", "is not a file of ladder share"),
    "binary": ("\udcff\udcff", "is not a file of ladder share"),
    "deep": ("[" * 100_000, "is not a file of ladder share"),
    "NaN": ({"load": float("nan")}, "NaN is not a number"),
    "kind": ({"kind": "x/../../pwned"}, "kind is not as ladder share"),
    "no kind": ({"kind": None}, "kind is not as ladder share"),
    "started": ({"started": "/../pwned"}, "started is not as ladder share"),
    "device": ({"device": "a|b"}, "device is not as ladder share"),
    "scripts": ({"scripts": ["../../pwned.py"]}, "scripts is not as ladder share"),
    "markup": ({"clocks": {"before": "<script>", "after": ""}}, "clocks is not as ladder share"),
    "text": ({"host": "alice"}, "what ladder share leaves out"),
}
# A line of a log, what it becomes, and what is said of it.
LOGS = {
    "note": (b"RESULT", b"note  hello\nRESULT", "is not as ladder share writes it"),
    "markup": (b'device="', b'device="<b>', "baseline.r1.log: its run line is not of"),
    "next line": (b"\nstep    2", b"\x85\nstep    2", "is not a file of ladder share"),
    "separator": (b"compiled=no", "compiled=no\u2028step".encode(), "its effective line is not of"),
    "other script": (b"script=baseline.py", b"script=mine.py", "is not as ladder share writes it"),
    "no B": (b" B=4 ", b" ", "KeyError"),
    "no time": (b'"warmup_steps": 2', b'"warmup_steps": "2"', "TypeError"),
    "all warm-up": (b'"warmup_steps": 2', b'"warmup_steps": 99', "IndexError|no measured steps"),
    "no JSON": (b'"measured_steps": 5', b'"measured_steps": 5.5.5', "is not a log of this ladder"),
}


@pytest.fixture
def members(climbed, tmp_path):
    """The (name, content) pairs of a good file, climb.json first, then baseline's logs."""
    with tarfile.open(shared(climbed, tmp_path / "good.tar.gz")) as tar:
        found = {member.name: tar.extractfile(member).read() for member in tar}
    first = ["climb.json", "baseline.r1.log"]
    return [(name, found.pop(name)) for name in first] + list(found.items())


def is_refused(packed, message, copy, tmp_path, capsys):
    before = state(copy)
    (tmp_path / "hostile.tar.gz").write_bytes(packed)
    entries = sorted(tmp_path.iterdir())
    line = refused(["publish", tmp_path / "hostile.tar.gz", "No."], capsys)
    assert re.search(message, line) and len(line) < 400, line
    assert str(tmp_path) in line, "it says which file"
    assert state(copy) == before and sorted(tmp_path.iterdir()) == entries


@pytest.mark.parametrize("name", MEMBERS)
def test_hostile_members_are_refused(name, project, members, tmp_path, capsys):
    *member, message = MEMBERS[name]
    is_refused(tar_of([*members, member]), message, project[0], tmp_path, capsys)


@pytest.mark.parametrize("name", FILES)
def test_hostile_archives_are_refused(name, project, members, tmp_path, capsys):
    make, message = FILES[name]
    is_refused(make(tar_of(members)), message, project[0], tmp_path, capsys)


@pytest.mark.parametrize("name", FACTS)
def test_a_hostile_climb_json_is_refused(name, project, members, tmp_path, capsys):
    facts, message = FACTS[name]
    if not isinstance(facts, str):
        facts = json.dumps({**json.loads(members[0][1]), **facts})
    packed = tar_of([("climb.json", facts.encode(errors="surrogateescape")), *members[1:]])
    is_refused(packed, message, project[0], tmp_path, capsys)


@pytest.mark.parametrize("name", LOGS)
def test_a_hostile_log_is_refused(name, project, members, tmp_path, capsys):
    old, new, message = LOGS[name]
    assert old in members[1][1]
    logs = [(log, text.replace(old, new)) for log, text in members[1:]]
    packed = tar_of([members[0], *logs])
    is_refused(packed, message, project[0], tmp_path, capsys)


def test_a_good_file_is_taken(project, no_picture, members, tmp_path):
    """What the refusals are measured against: the same members, unchanged."""
    (tmp_path / "good.tar.gz").write_bytes(tar_of(members))
    assert main(["publish", str(tmp_path / "good.tar.gz"), "Yes."]) == 0
    assert "Yes." in (project[0] / "RUNLOG.md").read_text()


@pytest.mark.parametrize("what", ["fifo", "/dev/zero", "nothing"])
def test_what_is_no_file_is_refused(what, project, tmp_path, capsys):
    path = tmp_path / "x.tar.gz"
    if what == "fifo":
        os.mkfifo(path)
    words = ["publish", what if what.startswith("/") else path, "No."]
    assert "holds no logs of a climb" in refused(words, capsys)


def test_a_climb_too_large_to_share_says_so(climbed, monkeypatch, capsys):
    monkeypatch.setattr(share, "PACKED", 3_000)
    assert "is too large to share" in refused(["share", climbed], capsys)
    assert publish.PACKED == 1_000_000
