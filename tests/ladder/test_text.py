"""Text on a screen: control characters are escaped, all others are shown as they are."""

import pytest
from helpers import SMALL, run_script

from ladder.files import ROOT
from ladder.log import read_log
from ladder.text import printable


@pytest.mark.parametrize(
    "text", ["世\u3000界", "👩\u200d👩", "نمی\u200cشود", "e\u0301", "\U0001fae9"]
)
def test_what_people_write_is_shown(text):
    assert printable(text) == text


@pytest.mark.parametrize(
    ("character", "escaped"),
    [
        ("\x1b", r"\x1b"),
        ("\n", r"\n"),
        ("\u2028", r"\u2028"),
        ("\u202e", r"\u202e"),
        ("\udce9", r"\udce9"),  # a byte of a file name that is not UTF-8
    ],
)
def test_what_controls_a_terminal_is_escaped(character, escaped):
    assert printable(f"a{character}b") == f"a{escaped}b"
    assert printable(f"a{character}b", keep=character) == f"a{character}b"


def test_a_corpus_whose_name_the_screen_lacks(shard, tmp_path):
    """As on a Windows console: the screen shows it escaped, the log as it is."""
    path = tmp_path / "戯曲\u3000一.bin"
    path.write_bytes(shard.read_bytes())
    flags = [*SMALL, "--steps", 1, "--data", path, "--log-dir", tmp_path]
    done = run_script(ROOT / "baseline.py", *flags, env={"PYTHONIOENCODING": "cp1252"})
    assert done.returncode == 0, done.stderr
    assert r"\u622f\u66f2\u3000\u4e00" in done.stdout
    (log,) = tmp_path.glob("*.log")
    assert read_log(log).run["data"] == path.stem
