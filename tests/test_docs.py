"""README.md and RUNLOG.md say what the scripts and the raw logs say."""

import io
import json
import math
import re
import statistics

import numpy as np
import pytest
from conftest import ROOT
from rich.console import Console

from ladder.commands import fit, profile, timeit
from ladder.commands.publish import BLOCK, render
from ladder.commands.results import T_975, read_climb
from ladder.commands.scripts import all_scripts, describe
from ladder.log import read_log

FILES = ["README.md", "RUNLOG.md"]
PROFILE = "2026-11-21-amd-epyc-2-threads-profile"


@pytest.mark.parametrize("name", FILES)
def test_every_table_is_what_its_logs_say(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert BLOCK.search(text)
    assert render(text) == text


@pytest.mark.parametrize("name", FILES)
def test_a_number_edited_by_hand_is_caught(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    start = BLOCK.search(text).start()
    edited = text[:start] + re.sub(r"\| (\d+)\.(\d)", r"| 1\1.\2", text[start:], count=1)
    assert edited != text and render(edited) != edited


def test_every_table_names_the_commit_it_was_measured_at():
    for match in BLOCK.finditer((ROOT / "RUNLOG.md").read_text(encoding="utf-8")):
        _, rows = read_climb(ROOT / match["folder"])
        (commit,) = {log.run["commit"] for row in rows for log in row.logs.values()}
        assert re.fullmatch("[0-9a-f]{12}", commit), "measured with uncommitted changes"


def test_readme_has_every_rung_with_its_numerics():
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    for path in all_scripts()[1:]:
        fields = describe(path)
        (line,) = [text for text in lines if text.startswith(f"| [{fields['Title']}](")]
        assert f"({path.relative_to(ROOT).as_posix()})" in line
        declared = line.rstrip(" |").rpartition("| ")[2]
        assert fields["Numerics"].startswith(declared)


def test_readme_asks_for_the_pytorch_that_the_project_takes():
    """Another one would be replaced by `pip install -e .`, gigabytes of CUDA libraries included."""
    (torch,) = re.findall(r'"(torch[^"]*)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert f"`pip install '{torch}' --index-url" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_scaling_table_is_what_its_logs_say():
    folder = ROOT / "logs" / "2026-11-21-amd-epyc-2-threads-ddp"
    rates = {}
    for ranks in (1, 2):
        logs = [read_log(path) for path in sorted(folder.glob(f"ranks_{ranks}.r*.log"))]
        assert {log.run["ranks"] for log in logs} == {str(ranks)}
        rates[ranks] = [log.result["tok_per_s"] for log in logs]
    rows = [(str(i), *pair) for i, pair in enumerate(zip(*rates.values(), strict=True), 1)]
    lines = [row_line(name, two / one, one, two) for name, one, two in rows]
    ratio = statistics.median(two / one for _, one, two in rows)
    lines.append(row_line("median", ratio, *map(statistics.median, rates.values())))
    assert "\n".join(lines) in (ROOT / "RUNLOG.md").read_text(encoding="utf-8")


def test_the_losses_after_200_steps_are_what_their_logs_say():
    folder = ROOT / "logs" / "2026-11-21-amd-epyc-1-thread-200-steps"
    losses, curves = [], []
    for stem in ("10_fused_adamw", "12_causal_blocks"):
        logs = [read_log(path) for path in sorted(folder.glob(f"{stem}.seed*.log"))]
        assert {(log.run["model"], log.run["steps"]) for log in logs} == {("gpt2", "200")}
        assert all(log.result["status"] == "ok" for log in logs)
        losses.append({log.run["seed"]: log.result["final_loss"] for log in logs})
        curves.append(np.array([[step["loss"] for step in log.steps] for log in logs]))
    before, after = losses
    assert before.keys() == after.keys() and len(before) >= 3
    differences = [after[seed] - before[seed] for seed in before]
    lines = [
        f"| {seed} | {before[seed]:.4f} | {after[seed]:.4f} | {difference:+.4f} |"
        for seed, difference in zip(before, differences, strict=True)
    ]
    mean = statistics.mean(differences)
    bound = 2 * statistics.stdev(differences) / len(differences) ** 0.5
    lines.append(f"| mean | | | {mean:+.4f} (two standard errors: {bound:.4f}) |")
    assert abs(mean) < bound
    text = (ROOT / "RUNLOG.md").read_text(encoding="utf-8")
    apart = abs(curves[1] - curves[0])  # (seeds, steps)
    assert apart[:, :10].max() < 0.001
    assert f"by up to {apart.max():.2f} in a single step" in text
    worst = mean + T_975[len(differences) - 2] * bound / 2
    assert f"a harm of more than {math.ceil(worst * 1e3) / 1e3} is excluded" in text
    assert "\n".join(lines).replace("-", "−") in text
    printed = (folder / "gradients.txt").read_text(encoding="utf-8")
    found = re.findall(r"all (\S+), worst (\S+)", printed)
    assert len(found) == 3
    for errors in found:
        together, worst = (f"{float(error):.5f}" if float(error) else "0" for error in errors)
        assert f"| {together} | {worst} |" in text


def test_page_faults_are_those_that_were_counted():
    folder = ROOT / "logs" / "2026-11-21-amd-epyc-2-threads-page-faults"
    counted = re.findall(r": (\d+) page faults a step", (folder / "page_faults.txt").read_text())
    ten, eleven = map(int, counted)
    said = f"rung 10 takes {ten:,} page faults a step and rung 11 {eleven or 'none'}"
    text = (ROOT / "RUNLOG.md").read_text(encoding="utf-8")
    assert said in " ".join(text.split())


def test_where_a_step_goes_is_what_the_profiles_say():
    groups = {
        "matmuls": r"aten::(mm|addmm|bmm)$",
        "attention's fused kernel": r"aten::_scaled_dot_product",
        "fused AdamW": r"aten::_fused_adamw_",
        "norm and clipping": r"aten::(linalg_vector_norm|mul_)$",
        "all else": "",
    }
    lines = {what: f"| {what} |" for what in [*groups, "self time of the step"]}
    for stem in ("10_fused_adamw", "12_causal_blocks"):
        found = json.loads((ROOT / "logs" / PROFILE / f"{stem}.json").read_text())
        left = {kernel["name"]: kernel["ms"] for kernel in found["kernels"]}
        for what, pattern in groups.items():
            names = [name for name in left if re.match(pattern, name)]
            ms = sum(left.pop(name) for name in names)
            lines[what] += f" {ms:.0f} ms, {ms / found['self_ms']:.0%} |".replace("%", " %")
        lines["self time of the step"] += f" {found['self_ms']:.0f} ms |"
    text = (ROOT / "RUNLOG.md").read_text(encoding="utf-8")
    assert "\n".join(lines.values()) in text
    # `found` is now rung 12's: the finding in words.
    kernels = found["kernels"]
    gelu, loss = (
        sum(kernel["ms"] for kernel in kernels if name in kernel["name"])
        for name in ("gelu", "log_softmax")
    )
    matmuls = sum(k["ms"] for k in kernels if re.match(groups["matmuls"], k["name"]))
    C, layers, tokens, T = 768, 12, 4 * 256, 256
    flops = 6 * tokens * (12 * layers * C**2 + 50304 * C) + 12 * layers * C * T * tokens * 3 / 4
    said = " ".join(text.split())
    assert f"they run at {flops / matmuls / 1e9:.2f} TFLOP/s" in said
    over, rest = found["self_ms"] * (1 - 1.28 / 1.5), found["self_ms"] - matmuls
    assert f"lose {over:.0f} of the other {rest:.0f} ms (1 − 1.28 / 1.5 of it" in said
    assert f"take {gelu:.0f} of them, the update 48, the loss {loss:.0f}" in said


def row_line(name, ratio, one, two):
    return f"| {name} | {one} | {two} | {ratio:.2f} | {ratio / 2:.0%} |".replace("%", " %")


def test_the_examples_in_readme_are_what_the_commands_print_of_their_logs():
    folder = ROOT / "logs" / "2026-11-21-amd-epyc-2-threads-examples"
    kept = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    console = Console(width=100, file=io.StringIO())
    profiled = [
        json.loads((ROOT / "logs" / PROFILE / f"{stem}.json").read_text())
        for stem in ("10_fused_adamw", "12_causal_blocks")
    ]
    profile.report(profiled, console)
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
