"""Every diff is one idea, docstring and all: budgets, tags, and what no rung may touch."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest
from helpers import changed_lines, lines_of, rung, with_mistake

from ladder.measure.scripts import (
    ON_SEVERAL_GPUS,
    all_scripts,
    base_of,
    number_of,
    transformers_scripts,
)

# Clock, seed, B and T, command line, data, and the loop's own lines.
UNTOUCHABLE = re.compile(
    r"perf_counter|synchronize\(|manual_seed|parse_args|batch_size|seq_len|\bB, T\b[^)]*="
    r"|Batches\(|load_corpus\(|next\(batches\)|range\(args\.steps|Run\("
    r"|run\.header(?!\(model, batches[,)])"
)

NEW_LOG_KEYS = {"08_adamw_clipping": ", norm=norm.item()", "09_cosine_lr": ", lr=lr"}
MODEL_SHAPES = re.compile(r"\bB, T(, C)? = (x|idx)\.shape")
TAG = re.compile(r"(?<=[#;] )speedup \d\d: [^;\n]+")  # a line may have two, with a semicolon


def budget(number: int) -> int:
    if number in (1, 2, 7, 10):
        return 5
    return 15 if number <= 7 else 40


def tags(lines: list[str]) -> Counter:
    return Counter(TAG.findall("\n".join(lines)))


def log_calls(lines: list[str]) -> list[str]:
    return [line for line in lines if "run.log(" in line]


def guard(path: Path, before: list[str], after: list[str]):
    """Raise AssertionError if the step to `path`, from `before` to `after`, is not one idea."""
    lines = changed_lines(before, after)
    limit = budget(number_of(path))
    assert len(lines) <= limit, f"{len(lines)} changed lines, budget {limit}"
    for line in lines:
        ours = MODEL_SHAPES.search(line) or not UNTOUCHABLE.search(line)
        assert ours, f"no rung changes such a line: {line}"
    number = path.stem[:2]
    listed = [line for line in lines if re.match(r"[+-]\d\d ", line)]
    one = len(listed) == 1 and listed[0].startswith(f"+{number} ")
    assert one, f"the docstring's list takes one line more, `{number} name: what it does`: {listed}"
    (call,) = log_calls(before)
    dropped = ()
    for script, key in NEW_LOG_KEYS.items():  # a value goes with the idea that computed it
        name = key[2:].partition("=")[0]
        if not re.search(rf"\n *{name} = ", "\n".join(after)):
            call = call.replace(key, "")
            dropped += (f"speedup {script[:2]}: ",)
    expected = call.removesuffix(")") + NEW_LOG_KEYS.get(path.stem, "") + ")"
    assert log_calls(after) == [expected], "the log line changed"
    gone = [tag for tag in tags(before) - tags(after) if not tag.startswith(dropped)]
    assert not gone, f"an earlier rung's tag is gone: {gone}"
    new = tags(after) - tags(before)
    assert new, f"no line is tagged # speedup {number}: why it is faster"
    for tag in new:
        assert tag.startswith(f"speedup {number}: "), f"not a tag of rung {number}: {tag}"


@pytest.mark.parametrize("path", all_scripts()[1:], ids=lambda path: path.stem)
def test_neighbours_differ_by_one_idea(path):
    guard(path, lines_of(base_of(path)), lines_of(path))


def test_a_number_names_one_script():
    numbers = [number_of(path) for path in all_scripts()]
    assert len(set(numbers)) == len(numbers)


# Changed lines, and what a tag that comes or stays begins with.
ON_SEVERAL = {"ddp_run": (32, "# ddp: "), "train": (160, "# train: "), "fsdp_run": (44, "# fsdp: ")}


@pytest.mark.parametrize("path", ON_SEVERAL_GPUS, ids=lambda path: path.stem)
def test_a_run_on_several_gpus_is_the_script_before_it_and_one_idea(path):
    before, after = lines_of(base_of(path)), lines_of(path)
    lines = changed_lines(before, after)
    limit, tag = ON_SEVERAL[path.stem]
    assert len(lines) <= limit, f"{len(lines)} changed lines, budget {limit}"
    assert any(tag in line for line in after) and not any(tag in line for line in before)
    numbers = re.compile(r"# speedup \d\d")
    assert set(numbers.findall("\n".join(before))) <= set(numbers.findall("\n".join(after)))
    if path.stem == "ddp_run":  # what every rung has stays: the clock, the seed, B, T
        touched = [line for line in lines if UNTOUCHABLE.search(line)]
        assert len(touched) == 6, touched  # the command line, Run and rows of a rank


def check_clock(source: str):
    """Both readings of the clock wait for the device, and all of a step lies between them."""
    loops = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.For) and ast.unparse(node.iter).endswith("args.steps)"):
            loops.append(node)
    (loop,) = loops
    lines = [ast.unparse(node) for node in loop.body]
    start = lines.index("start = time.perf_counter()")
    end = lines.index("dt = time.perf_counter() - start")
    assert lines[start - 1] == lines[end - 1] == "synchronize(device)"
    assert "\n".join(lines).count("perf_counter") == 2
    step = "\n".join(lines[start:end])
    for part in ("next(batches)", "to(device)", "zero_grad(", "model(", ".backward()"):
        assert part in step, part
    assert re.search(r"(optimizer|scaler)\.step\(", step)
    assert ".item()" not in step


TIMED = [*all_scripts(), *ON_SEVERAL_GPUS, *transformers_scripts()]


@pytest.mark.parametrize("path", TIMED, ids=lambda path: path.stem)
def test_the_clock_waits_and_covers_the_whole_step(path):
    check_clock(path.read_text())


@pytest.mark.parametrize(
    ("number", "right", "wrong"),
    [
        (0, "synchronize(device)\n            dt =", "dt ="),
        (0, "            x, y = x.to(device), y.to(device)\n", ""),
        (5, "tok_per_s=B * T / dt", "tok_per_s=B * T / dt / 1000"),
        (7, "# speedup 03: half precision; off where dtype is float32", ""),
        (5, "04 residual scaling: ", "04 smaller weights: "),
        (9, ", norm=norm.item()", ""),  # the norm is still computed
    ],
)
def test_a_second_idea_or_a_clock_that_flatters_is_caught(number, right, wrong, tmp_path):
    """Also in the baseline: carried through all rungs, it is in no diff between neighbours."""
    path = rung(number)
    changed = with_mistake(path, right, wrong, tmp_path / "copy.py")
    with pytest.raises(AssertionError):
        if number:
            guard(path, lines_of(base_of(path)), lines_of(changed))
        else:
            check_clock(changed.read_text())
