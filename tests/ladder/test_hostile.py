"""Files of strangers: a climb that somebody sent is text, and nothing in it acts."""

import json
import lzma
import re
import shutil

import blocks
import publish
import pytest
from climbs import PUBLISHED, as_it_ran, change

from ladder.commands.main import main, program
from ladder.errors import UsageError
from ladder.measure.rows import read_climb


@pytest.fixture
def sent(tmp_path):
    """The folder of a climb that somebody sent."""
    return as_it_ran(PUBLISHED, tmp_path / "sent")


@pytest.fixture
def told(sent, tmp_path, monkeypatch, capsys):
    """told(): the line with which `report` and `publish` both refuse that folder."""
    monkeypatch.chdir(tmp_path)

    def refuse():
        assert main(["report", str(sent), "--out", "page.html"]) == 2
        assert program(publish.run, [str(sent), "Good."]) == 2
        line, same = capsys.readouterr().err.splitlines()
        assert line == same and not (tmp_path / "page.html").exists()
        return line

    return refuse


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kind", "ablate"),
        ("kind", "batch-sizes"),
        ("started", "../../2026-12-24 10:00"),
        ("commit", "--output=mine"),
        ("scripts", ["../secret.py"]),
        ("scripts", ["a/same.py", "b/same.py"]),
        ("scripts", "baseline.py"),
        ("rounds", True),
        ("minutes", "an hour"),
        ("load_before", float("nan")),
        ("rates", {"peak_flops": [0]}),
        ("rates", {"peak_flops": ["fast"]}),
        ("rates", {"peak_flops": [1e12], "copy_bytes_per_s": [1e9]}),
        ("batch_sizes", [4]),
        ("failures", {"baseline.r1": None}),
        ("device", "CPU\x1b]0;mine\x07"),
        ("versions", {"torch\x1b[2J": "2"}),
        ("more", 1),
    ],
)
def test_a_climb_json_is_read_strictly(sent, told, name, value):
    path = sent / "climb.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    assert told().startswith(f"error {path} is not a climb.json of this ladder: ")


@pytest.mark.parametrize("text", ["{", "[]", "[" * 100_000])
def test_what_is_no_climb_json_is_told_in_a_line(sent, told, text):
    (sent / "climb.json").write_text(text)
    assert "is not a climb.json of this ladder: " in told()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r" B=4 ", " B=many "),
        (r" B=4 ", " B=4 total_batch=many "),
        (r" T=256 ", " "),
        (r" tokens=\d+ ", " tokens=0 "),
        (r" epoch_batches=\S+", " epoch_batches=nan"),
        (r"peak_flops=\S+", "peak_flops=inf"),
        (r"^mfu .*\n", ""),
        (r"dt +\S+ ms", "dt 0 ms"),
        (r"^step +3/.*\n", ""),
        (r"\| loss \S+ \|", "| loss nan |"),
        (r"\| loss \S+ \|", "|"),
        (r"^RESULT .*", ""),
        (r"^RESULT .*", "RESULT []"),
        (r"^RESULT .*", "RESULT " + "[" * 100_000),
        (r'"status": "ok"', '"status": "stopped"'),
        (r'"peak_bytes": \d+', '"peak_bytes": "many"'),
        (r"\Z", "\nbaseline.r2.log\n"),
        (r"\A", "what\n"),
    ],
)
def test_a_log_is_read_strictly(sent, told, old, new):
    path = sent / "baseline.r1.log"
    text, count = re.subn(old, new, path.read_text(), flags=re.MULTILINE)
    assert count
    path.write_text(text)
    assert str(path) in told()


def test_results_are_computed_from_the_steps(sent):
    """A RESULT that claims more changes no row."""
    _, before = read_climb(sent)
    for path in sent.glob("*.log"):
        text = path.read_text()
        for key in ("warmup_steps", "measured_steps", "median_ms", "tok_per_s"):
            text, count = re.subn(f'"{key}": [^,]+', f'"{key}": 1', text)
            assert count
        path.write_text(text)
    _, after = read_climb(sent)
    for old, new in zip(before, after, strict=True):
        assert (old.ms, old.tok_per_s, old.gain) == (new.ms, new.tok_per_s, new.gain)


def test_compressed_logs_that_are_none_are_told_in_a_line(sent, told):
    (sent / "runs.log.xz").write_bytes(lzma.compress(b"baseline.r1.log\n")[:-9])
    assert "runs.log.xz cannot be decompressed" in told()


def test_a_link_in_the_folder_leads_nowhere(sent, tmp_path):
    secret = tmp_path / "secret.py"
    secret.write_text("'a word of mine'")
    (sent / "baseline.py").symlink_to(secret)
    out = tmp_path / "page.html"
    assert main(["report", str(sent), "--out", str(out)]) == 0
    assert "a word of mine" not in out.read_text()


def test_publish_wants_the_scripts_that_are_in_no_commit(sent):
    change(sent, scripts=["baseline.py", "mine.py"])
    shutil.copy(sent / "01_weight_tying.r1.log", sent / "mine.r1.log")
    with pytest.raises(UsageError, match=r"mine\.py is not in the folder"):
        publish.read_publishable(sent)


def test_text_of_a_log_is_no_marker_in_the_run_log(sent):
    evil = "<!-- table logs/x --> <script>"
    change(sent, device=evil)
    climb, rows = read_climb(sent)
    rows[0].log.run["data"] = evil
    words = publish.entry(climb, rows, f"logs/{PUBLISHED.name}", "Good.")
    assert "<script>" not in words and "<!-- table logs/x" not in words
    assert blocks.render(words) == words
