"""README.md, RUNLOG.md and docs/ say what the scripts, the commands and the raw logs say.

What RUNLOG.md says of logs outside its tables is checked by a check.py beside them, run by hand.
"""

import io
import json
import re
import statistics
from itertools import pairwise

import pytest
from conftest import ROOT
from rich.console import Console

from ladder.commands import COMMANDS, fit, main, profile, timeit
from ladder.commands.log import read_log
from ladder.commands.publish import BLOCK, OVERVIEW, render
from ladder.commands.results import read_climb
from ladder.commands.tables import screen

PAGES = ["README.md", "RUNLOG.md", "CONTRIBUTING.md"]
PAGES += sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))
CPU = ROOT / "logs" / "2026-11-21-amd-epyc-2-threads"


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def logs(name: str):
    """The folder of a climb or of other logs on the CPU that README.md shows."""
    return CPU.with_name(f"{CPU.name}-{name}")


def section(name: str, heading: str) -> str:
    """The text under one `## heading` of a page."""
    return re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", page(name), re.DOTALL | re.MULTILINE)[1]


def code_blocks(text: str) -> list[str]:
    return re.findall(r"^```\n(.*?)\n```", text, flags=re.DOTALL | re.MULTILINE)


def words(text: str) -> str:
    return " ".join(text.split())


# ------------------------------------------------------------------------- generated tables


@pytest.mark.parametrize("name", PAGES)
def test_every_table_is_what_its_logs_say(name):
    assert render(page(name)) == page(name)


def test_every_table_names_the_commit_it_was_measured_at():
    """That the other logs of a table have the same one is read_climb's."""
    for match in BLOCK.finditer(page("RUNLOG.md")):
        log = read_log(next((ROOT / match["folder"]).glob("*.r1.log")))
        assert re.fullmatch("[0-9a-f]{12}", log.run["commit"]), "with uncommitted changes"


# ------------------------------------------------------------------------------ README.md


def test_readme_is_short_and_has_its_generated_parts():
    readme = page("README.md")
    assert len(readme.splitlines()) <= 200
    assert {m["kind"] for m in OVERVIEW.finditer(readme)} == {"headline", "rungs", "machines"}
    assert [m["kind"] for m in BLOCK.finditer(readme)] == ["results"]


def test_readme_asks_for_a_pytorch_that_the_project_takes():
    """Another one would be replaced by `pip install -e .`, gigabytes of CUDA libraries included."""
    (taken,) = re.findall(r'"(torch[^"]*)"', page("pyproject.toml"))
    (asked,) = re.findall(r"`pip install '?(torch[^' ]*)'? --index-url", words(page("README.md")))
    assert asked in (taken, "torch")


def test_the_examples_in_readme_are_lines_of_logs_and_scripts():
    of_logs = (
        ("1. Run a rung and read its log", logs("climb-3") / "05_torch_compile.r1.log"),
        ("2. Diff two neighbours", ROOT / "speedups" / "05_torch_compile.py"),
        ("3. Use several GPUs", logs("ddp") / "ranks_2.r1.log"),
    )
    for heading, path in of_logs:
        text = page("README.md").partition(f"\n### {heading}\n")[2]
        command, shown = code_blocks(text)[:2]
        assert command.partition(" ")[0] in ("python", "git", "torchrun")
        lines = path.read_text(encoding="utf-8").splitlines()
        for line in shown.splitlines():
            line = line[1:] if path.suffix == ".py" else line
            pattern = ".*".join(map(re.escape, line.split("…")))
            assert any(re.fullmatch(pattern, found) for found in lines), line


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_readme_and_has_an_example(name):
    assert f"(docs/commands.md#{name})" in page("README.md")
    assert re.search(rf"`ladder {name}\b|^ladder {name}\b", section("docs/commands.md", name), re.M)


# ----------------------------------------------------------------------------------- docs/


def printed_by(name: str) -> str:
    """What a command prints of its logs."""
    console = Console(width=100, file=io.StringIO())
    kept = {path.stem: json.loads(path.read_text()) for path in logs("examples").glob("*.json")}
    if name == "profile":
        found = sorted(logs("profile").glob("*.json"))
        profile.report([json.loads(path.read_text()) for path in found], console)
    elif name == "timeit":
        timeit.report(kept["timeit"], console)
    elif name == "fit":
        rows = [fit.Row(**row) for row in kept["fit"]["rungs"]]
        fit.report(rows, kept["fit"]["memory_gib"], console)
    else:
        console.width = 140
        folders = {"climb": "climb-2", "ablate": "ablate-2", "peers": "peers"}
        facts, rows = read_climb(logs(folders[name]))
        console.print(screen(facts, rows, console))
        console.print(f"RATIO top/transformers {rows[-1].total.ratio:.2f}")
    return console.file.getvalue()


RUN_HERE = {"diff": ["5"], "limits": ["--gpu", "A100 SXM"], "share": [str(logs("climb-3"))]}
RUN_HERE["share"] += ["--out", "2026-11-21-amd-epyc-2-threads-climb.json.gz"]


@pytest.mark.parametrize(
    "name", ["climb", "ablate", "peers", "profile", "timeit", "fit", *RUN_HERE]
)
def test_examples_are_what_the_commands_print(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if name in RUN_HERE:
        assert main([name, *RUN_HERE[name]]) == 0
        printed = words(capsys.readouterr().out)
    else:
        printed = words(printed_by(name))
    block = code_blocks(section("docs/commands.md", name))[-1]
    lines = [words(line) for line in block.splitlines() if line != "…"]
    assert len(lines) > 3
    for line in lines:
        assert line in printed, line


def test_our_numbers_in_prose_are_those_of_the_logs():
    rates = [
        [read_log(path).result["tok_per_s"] for path in sorted(logs("ddp").glob(f"ranks_{n}.r*"))]
        for n in (1, 2)
    ]
    ratio = statistics.median(two / one for one, two in zip(*rates, strict=True))
    assert f"train {ratio:.2f} times the tokens of one" in words(page("README.md"))
    said = f"train {ratio:.2f} times the tokens of one, {ratio / 2:.0%} of the ideal"
    assert said.replace("%", " %") in words(page("docs/cluster.md"))

    ratio = read_climb(logs("peers"))[1][-1].total.ratio
    assert f"trains {ratio:.2f} times its tokens" in words(page("README.md"))

    first = CPU.with_name("2026-11-21-amd-epyc-2-cores-first")
    ms = [read_log(next(first.glob(f"0{n}_*.log"))).result["median_ms"] for n in (3, 4)]
    longer = f"rung 04 took {ms[1] / ms[0] - 1:.0%} longer than rung 03".replace("%", " %")
    assert longer in words(page("docs/measuring.md"))

    ms = []
    for stem, name in (("10_fused_adamw", "aten::_scaled_dot"), ("12_causal_blocks", "aten::bmm")):
        kernels = json.loads((logs("profile") / f"{stem}.json").read_text())["kernels"]
        ms.append(sum(k["ms"] for k in kernels if k["name"].startswith(name)))
    said = f"kernel, {ms[0]:.0f} ms forward and backward, became {ms[1]:.0f} ms of"
    assert said in words(page("docs/commands.md"))


# ------------------------------------------------------------------ calculated, not measured


def table(text: str) -> list[list[str]]:
    """The cells of the first Markdown table after the start of `text`, without its head."""
    lines = re.search(r"^\| -.*\n((\|.*\n)+)", text, re.MULTILINE)[1].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def number(cell: str) -> float:
    return float(re.match(r"[\d,.]+", cell)[0].replace(",", ""))


def test_the_scaling_of_gpus_is_what_its_arithmetic_gives():
    parameters, tokens, layers, T, C = 124_475_904, 524_288, 12, 1024, 768
    flops = 6 * (parameters - T * C) + 12 * layers * C * T
    step = flops * tokens / (0.4 * 989e12) * 1e3  # ms on one H100
    text = page("docs/cluster.md").partition("## What more GPUs should bring")[2]
    for cells in table(text):
        n, link = int(cells[0]), number(cells[1].rpartition(", ")[2])  # GB/s
        transfer = 2 * (n - 1) / n * 4 * parameters / link / 1e6
        exposed = max(0, transfer - min(step / 32, step / n) * 2 / 3)
        expected = [step / n, transfer, exposed, 100 * step / n / (step / n + exposed)]
        for cell, value in zip(cells[3:], expected, strict=True):
            digits = len(cell.split()[0].partition(".")[2])
            assert number(cell) == round(value, digits), (cells, value)


def test_gains_reported_elsewhere_follow_from_the_figures_beside_them():
    text = page("docs/reported.md")
    lecture = [number(cells[2]) for cells in table(text)]
    pairs = [(number(a[2]) / number(b[2]), b[3]) for a, b in pairwise(table(text))]
    other = table(text.partition("## One A100, another order")[2])
    pairs += [(number(b[1]) / number(a[1]), b[2]) for a, b in pairwise(other)]
    assert len(pairs) == 17
    for ratio, said in pairs:
        assert said == f"{ratio - 1:+.0%}".replace("%", " %")
    assert [number(cells[4]) for cells in table(text)] == [
        float(f"{16 * 1024 / ms * 1e3:.3g}") for ms in lecture
    ]


# ----------------------------------------------------------------------------------- links


def anchors(text: str) -> set[str]:
    """The headings of a page as GitHub links to them."""
    found = re.findall(r"^#+ (.*)", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_somewhere(name):
    text = re.sub(r"^```.*?^```", "", page(name), flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    for link in links:
        if link.startswith("https://"):
            continue
        target, _, anchor = link.partition("#")
        path = (ROOT / name).parent / target if target else ROOT / name
        assert path.exists(), link
        assert not anchor or anchor in anchors(path.read_text(encoding="utf-8")), link
