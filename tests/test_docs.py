"""README.md and RUNLOG.md say what the scripts and the raw logs say.

What RUNLOG.md says of logs outside its tables is checked by a check.py beside them, run by hand.
"""

import io
import json
import re

import pytest
from conftest import ROOT
from rich.console import Console

from ladder.commands import fit, profile, timeit
from ladder.commands.publish import BLOCK, render
from ladder.commands.scripts import all_scripts, describe
from ladder.log import read_log

FILES = ["README.md", "RUNLOG.md"]


@pytest.mark.parametrize("name", FILES)
def test_every_table_is_what_its_logs_say(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert BLOCK.search(text)
    assert render(text) == text


def test_a_number_edited_by_hand_is_caught():
    block = BLOCK.search((ROOT / "README.md").read_text(encoding="utf-8"))[0]
    edited = re.sub(r"\| (\d+)\.(\d)", r"| 1\1.\2", block, count=1)
    assert edited != block and render(edited) == block


def test_every_table_names_the_commit_it_was_measured_at():
    """That the other logs of a table have the same one is read_climb's."""
    for match in BLOCK.finditer((ROOT / "RUNLOG.md").read_text(encoding="utf-8")):
        log = read_log(next((ROOT / match["folder"]).glob("*.r1.log")))
        assert re.fullmatch("[0-9a-f]{12}", log.run["commit"]), "with uncommitted changes"


def test_readme_has_every_rung_with_its_numerics():
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    for path in all_scripts()[1:]:
        fields = describe(path)
        (line,) = [text for text in lines if text.startswith(f"| [{fields['Title']}](")]
        assert f"({path.relative_to(ROOT).as_posix()})" in line
        declared = line.rstrip(" |").rpartition("| ")[2]
        assert fields["Numerics"].startswith(declared)


def test_readme_asks_for_a_pytorch_that_the_project_takes():
    """Another one would be replaced by `pip install -e .`, gigabytes of CUDA libraries included."""
    (taken,) = re.findall(r'"(torch[^"]*)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (asked,) = re.findall(r"`pip install '?(torch[^' ]*)'? --index-url", readme)
    assert asked in (taken, "torch")


def test_the_examples_in_readme_are_what_the_commands_print_of_their_logs():
    folder = ROOT / "logs" / "2026-11-21-amd-epyc-2-threads-examples"
    kept = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    console = Console(width=100, file=io.StringIO())
    profiles = ROOT / "logs" / "2026-11-21-amd-epyc-2-threads-profile"
    profile.report([json.loads(p.read_text()) for p in sorted(profiles.glob("*.json"))], console)
    timeit.report(kept["timeit"], kept["timeit"]["cells"], console)
    fit.report([fit.Row(**row) for row in kept["fit"]["rungs"]], kept["fit"]["memory_gib"], console)
    printed = " ".join(console.file.getvalue().split())
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = text[text.index("**`ladder profile 10 12`**") : text.index("**`ladder ablate`**")]
    blocks = re.findall(r"^```\n(.*?)\n```", text, flags=re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    for part in "\n".join(blocks).split("…\n"):
        for line in part.splitlines():
            assert " ".join(line.split()) in printed, line
