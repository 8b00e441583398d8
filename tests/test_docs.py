"""README.md, RUNLOG.md and docs/ say what the scripts, the commands and the raw logs say."""

import ast
import re
import subprocess
from pathlib import Path

import pytest
from climbs import HERE, LOGS
from helpers import changed_lines, lines_of
from rich.console import Console

from dev.blocks import BLOCK, render
from dev.climbs import climbs_in
from dev.pictures import pictures
from dev.publish import in_history
from dev.reports import known_json
from ladder.checkout import ROOT, git
from ladder.cli import MODELS
from ladder.commands.main import COMMANDS
from ladder.log import parse_log
from ladder.measure.folder import Climb, log_texts
from ladder.measure.rows import read_climb
from ladder.measure.scripts import (
    BRANCHES,
    ON_SEVERAL_GPUS,
    all_scripts,
    base_of,
    relative_name,
)
from ladder.memory import memory_on_sale, train_batch
from ladder.show.reported import known
from ladder.show.tables import caption, for_terminal, settings
from ladder.show.words import gain, span

PAGES = ["README.md", "RUNLOG.md", "CONTRIBUTING.md", "beyond/RUNLOG.md"]
PAGES += [f"{folder}/README.md" for folder in ("speedups", *BRANCHES)]
PAGES += sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def section(name: str, heading: str) -> str:
    """The text under one `## heading` of a page."""
    return re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", page(name), re.DOTALL | re.MULTILINE)[1]


def code_blocks(text: str) -> list[str]:
    return re.findall(r"^```(?:diff|python)?\n(.*?)\n```", text, flags=re.DOTALL | re.MULTILINE)


def words(text: str) -> str:
    return " ".join(text.split())


# What stands with a block: the rates of a busy machine say nothing of a loss.
SETTINGS = {"table": caption, "losses": settings}


@pytest.mark.parametrize("name", PAGES)
def test_every_table_is_what_its_logs_say_and_of_a_commit(name):
    assert render(page(name)) == page(name)
    for match in BLOCK.finditer(page(name)):
        for folder in match["folders"].split():
            text = next(iter(log_texts(ROOT / folder).values()))  # the others have the same
            run = parse_log(text, folder).run
            assert re.fullmatch("[0-9a-f]{12}", run["commit"]), "with uncommitted changes"
        if match["name"] in SETTINGS:
            assert SETTINGS[match["name"]](read_climb(ROOT / folder)) in page(name)


def test_gains_in_the_typed_tables_are_those_of_the_logs_that_their_rows_link_to():
    rows = re.findall(r"^\|.*?\]\((logs/[^)]+)\)(.*)", BLOCK.sub("", page("RUNLOG.md")), re.M)
    assert len(rows) > 9
    for folder, cells in rows:
        found = [gain(row.gain) for row in read_climb(ROOT / folder).rows if row.gain]
        for text in re.findall(r"[+−][\d.]+ % \([^)]*\)", cells):
            assert text in found, (folder, text)


def test_examples_are_what_is_printed(capsys):
    """Line by line, but for blanks."""
    console = Console(width=140)
    console.print(for_terminal(read_climb(LOGS / f"{HERE}-climb-2"), console))
    printed = capsys.readouterr().out
    printed += log_texts(LOGS / "2026-11-25-amd-epyc-1-thread-train-tiny")["two_ranks"]
    printed = words(printed)

    command, *lines = code_blocks(page("README.md"))[0].splitlines()
    diff = subprocess.run(command[2:].split(), cwd=ROOT, capture_output=True, text=True)
    assert lines == diff.stdout.splitlines()
    climb = code_blocks(section("docs/your-card.md", "Measure your machine"))[-1]
    two_ranks = code_blocks(section("docs/train.md", "Several GPUs"))[2]
    for block in (climb, two_ranks):
        for line in block.splitlines():
            assert line == "…" or words(line) in printed, line


def code_of(source: str) -> str:
    """A script's code without its docstring and comments."""
    module = ast.parse(source)
    assert ast.get_docstring(module)
    del module.body[0]
    return ast.unparse(module)


def test_a_clone_has_the_commit_of_each_climb(history):
    for path in LOGS.glob("*/climb.json"):
        climb = Climb.read_from(path.parent)
        for commit in (climb.commit, *climb.joined):
            assert in_history(commit), path


def test_a_climb_that_is_shown_ran_the_code_that_stands_here(history):
    """As it is at the climb's commit, or at that up to which a run log says what has changed since.

    Else measure again, or say what has changed. What scripts import is not compared: of that, only
    `next(batches)` is timed.
    """
    here = {path.stem: path for path in all_scripts()}
    climbs = climbs_in("README.md", "measured") + climbs_in("beyond/README.md", "staircase")
    logs = words(page("RUNLOG.md") + page("beyond/RUNLOG.md"))
    said = dict(re.findall(r"Since commit (\w+), up to (\w+)", logs))
    for climb, _ in climbs:
        commit = said.get(climb.commit, climb.commit)
        for stem in here.keys() & {Path(script).stem for script in climb.scripts}:
            then = git("show", f"{commit}:{relative_name(here[stem])}")
            assert code_of(here[stem].read_text("utf-8")) == code_of(then), stem


@pytest.mark.parametrize("name", PAGES)
def test_commands_logs_and_links_of_a_page_exist(name):
    text = page(name)
    named = re.findall(r"(?:^|`|&& )ladder ([a-z]+)\b", text, flags=re.MULTILINE)
    assert set(named) <= COMMANDS.keys()
    for log in re.findall("logs/[0-9]{4}-[A-Za-z0-9_./-]*[A-Za-z0-9]", text):
        assert (ROOT / log).exists(), log
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r'(?:\]\(|src=")(?!https://)([^)"\s]+)', text):
        target, _, anchor = link.partition("#")
        path = ROOT / name
        if target:
            path = path.parent / target
        assert path.exists(), link
        if anchor:
            assert anchor in anchors(path), link


def anchors(path) -> list[str]:
    """The anchors that GitHub gives the headings of a page."""
    found = []
    for heading in re.findall(r"^#+ (.*)", path.read_text("utf-8"), re.MULTILINE):
        words = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading)  # of a link
        plain = re.sub(r"[^\w\- ]", "", words.lower())
        found.append(plain.replace(" ", "-"))
    return found


def test_the_generated_files_are_what_is_made_of_the_repository(history):
    """Else: python -m dev.regenerate."""
    assert page("ladder/show/known.json") == known_json()
    for name, made in pictures().items():
        assert page(f"docs/{name}") == made, name


@pytest.mark.parametrize("variant", ["", "-narrow"])
def test_drawn_numbers(variant):
    beta2 = (ROOT / f"docs/beta2{variant}.svg").read_text("utf-8")
    for number in (2, 3):
        _, rows = read_climb(ROOT / f"logs/2026-11-26-amd-epyc-1-thread-climb-{number}")
        change = rows[1].loss_change
        words = f"+{-change.value:.3f} ({-change.high:.3f} to {-change.low:.3f})"
        assert words in beta2
    hours = re.findall(r", ([\d.–]+) h<", (ROOT / f"docs/loss{variant}.svg").read_text("utf-8"))
    page = (ROOT / "docs" / "train.md").read_text("utf-8")
    assert len(hours) == 8 and all(f"| {number} |" in page for number in hours)


def test_the_table_of_what_fits():
    """docs/your-card.md's, of train.py."""
    for size in ("gpt2", "gpt2-medium", "gpt2-large"):
        for way, recompute in {"`train.py`": False, "`--recompute`": True}.items():
            cells = ""
            for gb in (6, 8, 12, 16, 24):
                B = train_batch(memory_on_sale(gb), MODELS[size], 1024, recompute=recompute)
                cells += f" {B or '–'} |"
            assert f"| {size} | {way} |{cells}\n" in page("docs/your-card.md")


def test_the_hours_of_cards_follow_from_what_is_known_of_them():
    """The table of docs/train.md, in which a card's name stands once: 3 % are validation."""
    _, text = page("docs/train.md").split("| one card |")
    _, _, *rows = text.split("\n\n")[0].splitlines()
    assert len(rows) == 8
    rates = []
    for row in rows:
        card, rate, hours, steps = [cell.strip() for cell in row.split("|")[1:5]]
        if card:
            rates = known()[card]["tok_per_s"]
            assert rate == span(rates)
        tokens = float(steps.replace(",", "")) * 524288
        assert hours == "–".join(f"{tokens / 3600 / 0.97 / rate:.2g}" for rate in reversed(rates))


def test_numbers_typed_in_readme_are_those_of_its_table_and_of_the_diffs():
    text = words(page("README.md"))
    row = re.search(r"^\| RTX 4090 .*", page("README.md"), re.MULTILINE)[0]
    example = re.search(r"An owner of an RTX 4090(.*?)baseline's", text)[1]
    numbers = re.findall(r"\d[\d,.]*\d", example.replace("rung 10", ""))
    assert len(numbers) == 5
    for number in numbers:
        assert number in row, number
    for path in (ON_SEVERAL_GPUS[0], ON_SEVERAL_GPUS[-1]):
        lines = len(changed_lines(lines_of(base_of(path)), lines_of(path)))
        assert f"{lines} lines" in text, (path, lines)
