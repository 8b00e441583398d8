"""Every diff is one idea: budgets, tags, and what no rung may touch."""

import ast
import re
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import pytest
from conftest import rung, with_mistake

from ladder.commands.main import COMMANDS
from ladder.measure.scripts import ROOT, chain, number_of, parts_of, peer_scripts
from ladder.show.diffs import changed_lines

PAIRS = list(pairwise(chain()))
# Clock, seed, B and T, command line, data, and the loop's own lines.
UNTOUCHABLE = re.compile(
    r"perf_counter|synchronize\(|manual_seed|parse_args|batch_size|seq_len|\bB, T\b"
    r"|Batches\(|load_corpus\(|next\(batches\)|range\(args\.steps|run\.header|Run\("
)
# What may be touched all the same: in 13 what forward returns, in 18 when the batch is read.
MAY_TOUCH = {13: '"""idx, targets: (B, T) ', 18: "next(batches)"}
NEW_LOG_KEYS = {8: ", norm=norm.item()", 9: ", lr=lr"}
MODEL_SHAPES = re.compile(r"\bB, T(, C)? = (x|idx)\.shape")


def code_lines(path) -> list[str]:
    """The lines of a script with its docstring and its blank lines left out."""
    return [line for line in parts_of(path)[1].splitlines() if line.strip()]


def budget(number: int) -> int:
    if number in (1, 2, 7, 10):
        return 4
    return 14 if number <= 7 else 40


def tags(lines: list[str]) -> Counter:
    return Counter(tag for line in lines for tag in re.findall(r"# speedup \d\d: \S.*", line))


def guard(number: int, before: list[str], after: list[str]) -> None:
    """Raise AssertionError if the step from rung number-1 to rung number is more than one idea."""
    lines = changed_lines(before, after)
    assert len(lines) <= budget(number), f"{len(lines)} changed lines, budget {budget(number)}"
    for line in lines:
        allowed = MODEL_SHAPES.search(line) or MAY_TOUCH.get(number, "\n") in line
        assert allowed or not UNTOUCHABLE.search(line), line
    calls = [[line for line in source if "run.log(" in line] for source in (before, after)]
    expected = [line[:-1] + NEW_LOG_KEYS.get(number, "") + ")" for line in calls[0]]
    assert calls[1] == expected, "the log line changed"
    assert tags(after) >= tags(before), "an earlier rung's tag is gone"
    new = tags(after) - tags(before)
    assert new and all(tag.startswith(f"# speedup {number:02d}: ") for tag in new), new


@pytest.mark.parametrize(("before", "after"), PAIRS, ids=[after.stem for _, after in PAIRS])
def test_neighbours_differ_by_one_idea(before, after):
    guard(number_of(after), code_lines(before), code_lines(after))


def test_fsdp_is_one_change_of_ddp():
    before, after = (code_lines(ROOT / name) for name in ("ddp_run.py", "fsdp_run.py"))
    assert len(changed_lines(before, after)) <= 45
    assert {tag[:12] for tag in tags(after)} == {tag[:12] for tag in tags(before)}


def check_clock(source: str, number: int = 0) -> None:
    """Both readings of the clock wait for the device, and all of a step lies between them."""
    # From 18 on, the batch is copied to where the last one was.
    moved = "copy_(ids" if number >= 18 else "to(device)"
    loops = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.For)]
    (loop,) = [node for node in loops if ast.unparse(node.iter).endswith("args.steps)")]
    lines = [ast.unparse(node) for node in loop.body]
    clocks = [i for i, line in enumerate(lines) if "perf_counter" in line]
    assert [lines[i] for i in clocks] == [
        "start = time.perf_counter()",
        "dt = time.perf_counter() - start",
    ]
    assert [lines[i - 1] for i in clocks] == ["synchronize(device)"] * 2
    step = "\n".join(lines[slice(*clocks)])
    for part in ("next(batches)", moved, "zero_grad()", "model(", ".backward()"):
        assert part in step, part
    assert "optimizer.step()" in step or "scaler.step(optimizer)" in step  # makes it
    assert ".item()" not in step


TIMED = [*chain(), *peer_scripts(), ROOT / "ddp_run.py", ROOT / "fsdp_run.py"]


@pytest.mark.parametrize("path", TIMED, ids=lambda path: path.stem)
def test_the_clock_waits_and_covers_the_whole_step(path):
    check_clock(path.read_text(), number_of(path))


@pytest.mark.parametrize(
    ("number", "right", "wrong"),
    [
        (0, "synchronize(device)\n            dt =", "dt ="),
        (0, "            start = time.perf_counter()\n", ""),
        (0, "            x, y = x.to(device), y.to(device)\n", ""),
        (0, "            optimizer.step()\n", ""),
        (0, "            optimizer.step()\n", "            optimizer.step(), loss.item()\n"),
        (6, "B, T, device = args.batch_size,", "B, T, device = 2 * args.batch_size,"),
        (5, "torch.manual_seed(args.seed)", "torch.manual_seed(42)"),
        (5, "tok_per_s=B * T / dt", "tok_per_s=B * T / dt / 1000"),
        (5, "next(batches)", "next(batches).clone()"),
        (8, "norm=norm.item()", "grad_norm=norm.item()"),
        (7, "# speedup 07: ", "# "),
        (7, "# speedup 03: half precision", ""),
        (7, "if targets is None:\n            return logits, None", "assert targets is not None"),
    ],
)
def test_a_second_idea_or_a_clock_that_flatters_is_caught(number, right, wrong, tmp_path):
    """Also in the baseline: carried through all rungs, it is in no diff between neighbours."""
    changed = with_mistake(rung(number), right, wrong, tmp_path / "copy.py")
    with pytest.raises(AssertionError):
        if number:
            guard(number, code_lines(rung(number - 1)), code_lines(changed))
        else:
            check_clock(changed.read_text())


def imports(path) -> set[str]:
    """The modules of this project that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return {name for name in found if name.split(".")[0] == "ladder"}


def test_scripts_import_the_modules_of_ladder_and_nothing_above():
    """Every module in ladder/ is there because a script imports it, directly or not."""
    behind, new = set(), set().union(*(imports(path) for path in TIMED))
    while new := {name for name in new if name not in behind}:
        behind |= new
        files = [ROOT / f"{name.replace('.', '/')}.py" for name in new]
        new = set().union(*(imports(path) for path in files if path.exists()))
    modules = {f"ladder.{path.stem}" for path in (ROOT / "ladder").glob("[a-z]*.py")}
    assert modules == behind & modules and len(modules) <= 13
    assert not [name for name in behind if name.startswith(FLOORS[1:])]


# Each floor imports only itself and those before it. __main__.py starts the last one.
FLOORS = ("ladder", "ladder.measure", "ladder.show", "ladder.commands")


def floor(module: str) -> int:
    return max(n for n, name in enumerate(FLOORS) if f"{module}.".startswith(f"{name}."))


def module_imports() -> dict[str, set[str]]:
    """The modules of ladder/ that each module of it imports."""
    files = [path for path in (ROOT / "ladder").rglob("*.py") if path.stem[:2] != "__"]
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in files}
    return {name: imports(path) & names.keys() for name, path in names.items()}


def check_floors(graph: dict[str, set[str]]) -> None:
    for name, imported in graph.items():
        above = [other for other in imported if floor(other) > floor(name)]
        assert not above, f"{name} imports {above[0]}"
    tuple(TopologicalSorter(graph).static_order())  # raises CycleError


def test_each_floor_imports_only_those_before_it_and_none_in_a_circle():
    check_floors(module_imports())
    for name, imported in (("ladder.run", "ladder.measure.rows"), ("ladder.log", "ladder.run")):
        graph = module_imports()
        graph[name].add(imported)
        with pytest.raises((AssertionError, CycleError)):
            check_floors(graph)


def test_commands_has_one_module_for_each_subcommand():
    found = {path.stem for path in (ROOT / "ladder" / "commands").glob("[a-z]*.py")}
    assert found == {*COMMANDS, "main"}
