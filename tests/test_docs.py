"""README.md, RUNLOG.md and docs/ say what the scripts, the commands and the raw logs say."""

import io
import re

import pytest
from blocks import BLOCK, render
from climbs import HERE, LOGS
from rich.console import Console

from ladder.commands import roofline
from ladder.commands.main import COMMANDS, main
from ladder.files import ROOT
from ladder.log import parse_log
from ladder.measure.climb import log_texts
from ladder.measure.rows import read_climb
from ladder.show.reported import reported_gpus, roofline_fraction
from ladder.show.tables import caption, for_terminal, percent

PAGES = ["README.md", "RUNLOG.md", "CONTRIBUTING.md"]
PAGES += sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def section(name: str, heading: str) -> str:
    """The text under one `## heading` of a page."""
    return re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", page(name), re.DOTALL | re.MULTILINE)[1]


def code_blocks(text: str) -> list[str]:
    return re.findall(r"^```\n(.*?)\n```", text, flags=re.DOTALL | re.MULTILINE)


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("name", PAGES)
def test_every_table_is_what_its_logs_say_and_of_a_commit(name):
    assert render(page(name)) == page(name)
    for match in BLOCK.finditer(page(name)):
        for folder in match["folders"].split():
            text = next(iter(log_texts(ROOT / folder).values()))  # the others have the same
            run = parse_log(text, folder).run
            assert re.fullmatch("[0-9a-f]{12}", run["commit"]), "with uncommitted changes"
        if match["kind"] == "table":
            assert caption(*read_climb(ROOT / folder)) in page(name)


def test_gains_in_the_typed_tables_are_those_of_the_logs_that_their_rows_link_to():
    rows = re.findall(r"^\|.*?\]\((logs/[^)]+)\)(.*)", BLOCK.sub("", page("RUNLOG.md")), re.M)
    assert len(rows) > 9
    for folder, cells in rows:
        found = [percent(row.gain) for row in read_climb(ROOT / folder)[1]]
        for gain in re.findall(r"[+−][\d.]+ % \([^)]*\)", cells):
            assert gain in found, (folder, gain)


def test_the_examples_in_readme_are_what_is_printed(capsys):
    assert main(["diff", "5"]) == 0
    diff, _, log = code_blocks(page("README.md"))
    assert f"\n{diff}\n" in capsys.readouterr().out
    texts = log_texts(ROOT / "logs" / "2026-11-23-intel-xeon-amx-2-threads-climb")
    lines = texts["05_torch_compile.r1"].splitlines()
    for line in log.splitlines():
        pattern = ".*".join(map(re.escape, line.split("…")))
        assert any(re.fullmatch(pattern, found) for found in lines), line


@pytest.mark.parametrize("name", PAGES)
def test_commands_and_links_of_a_page_exist(name):
    text = page(name)
    named = re.findall(r"(?:^|`|&& )ladder ([a-z]+)\b", text, flags=re.MULTILINE)
    assert set(named) <= COMMANDS.keys()
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\((?!https://)([^)\s]+)\)", text):
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
        plain = re.sub(r"[^\w\- ]", "", heading.lower())
        found.append(plain.replace(" ", "-"))
    return found


def test_the_example_of_a_climb_is_what_is_printed():
    console = Console(width=140, file=io.StringIO())
    console.print(for_terminal(*read_climb(LOGS / f"{HERE}-climb-2"), console))
    printed = words(console.file.getvalue())
    block = code_blocks(section("docs/commands.md", "climb"))[-1]
    lines = [words(line) for line in block.splitlines() if line != "…"]
    assert len(lines) > 3
    for line in lines:
        assert line in printed, line


def test_docs_have_the_fastest_report_of_each_gpu():
    fastest = {row["gpu"]: row for row in sorted(reported_gpus(), key=lambda row: row["tok_per_s"])}
    for gpu, row in fastest.items():
        share = roofline_fraction(row, roofline.LISTED[gpu]._asdict())
        ms = row["ms_a_step"]
        cells = f"| {gpu} | {row['B']:.0f} | {ms * share:,.0f} | {ms:,.0f} | {share * 100:.0f} % |"
        assert cells in page("docs/roofline.md"), cells
