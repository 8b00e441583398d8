"""`ladder limits` and the counts behind it."""

import math
import os
import re
import runpy
import shlex
import subprocess
import sys
from fractions import Fraction

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ladder.commands import count, limits, main
from ladder.commands.scripts import all_scripts, docstring
from ladder.files import ROOT
from ladder.machine import DATA_SHEETS, find_gpu

A100 = ["--gpu", "A100 SXM"]
RUNGS = {path.stem: path for path in all_scripts()}


@pytest.mark.parametrize(
    ("device", "stem"),
    [
        ("cuda", "baseline"),
        ("cuda", "03_bf16_autocast"),
        pytest.param("cuda", "10_fused_adamw", marks=pytest.mark.slow),
        pytest.param("cpu", "12_causal_blocks", marks=pytest.mark.slow),
    ],
)
def test_work_json_is_what_a_recount_gives(device, stem):
    """On torch 2.9 and 2.13 to the last byte; 2.15 fuses one small operator less."""
    counted, again = limits.counted()[device][stem], count.count(RUNGS[stem], device)
    assert again.keys() == counted.keys()
    for kind, numbers in counted.items():
        exact = kind not in ("other_bytes", "kernels")
        same = numbers if exact else pytest.approx(numbers, rel=0.002)
        assert again[kind] == same, kind


def test_work_json_has_every_rung_that_counts():
    assert list(limits.counted()["cuda"]) == list(RUNGS)[:11]
    assert list(limits.counted()["cpu"]) == list(RUNGS)


@pytest.mark.slow
def test_layers_are_linear():
    """Three from one and two. (Twelve were traced once: 0.25 % more bytes between the matmuls.)"""
    script = RUNGS["06_flash_attention"]
    one, two, three = (count.step(script, 2, layers) for layers in (1, 2, 3))
    for kind in count.COUNTED:
        tolerance = 0.005 if kind == "other_bytes" else 0
        assert three[kind] == pytest.approx(2 * two[kind] - one[kind], rel=tolerance), kind


def test_flops_are_those_of_the_formula():
    """Six per parameter of a matmul and token; twelve per pair of query, key and channel."""
    tokens, layers, C = 16 * 1024, 12, 768
    step = limits.work(16)["baseline"]
    assert step["linear_flops"] == 6 * (12 * layers * C**2 + 50257 * C) * tokens
    assert step["attention_flops"] == 12 * layers * C * 1024 * tokens
    flash = limits.work(16)["06_flash_attention"]["attention_flops"]
    assert flash == step["attention_flops"] / 2 * 7 / 6  # half of it, and QK^T once again
    cpu = {stem: step["attention_flops"] for stem, step in limits.work(4, "cpu").items()}
    assert cpu["baseline"] == step["attention_flops"] / 4 / 16  # T² is a 16th
    assert cpu["06_flash_attention"] == cpu["baseline"] * 7 / 6  # masked afterwards


def test_docstrings_say_what_is_counted():
    """What they say of bytes and FLOPs follows from work.json, and their products are right."""
    words = {stem: " ".join(docstring(path).split()) for stem, path in RUNGS.items()}
    steps, fixed = (list(limits.work(B).values()) for B in (16, 0))
    cpu = limits.work(4, "cpu")

    def scores(step, size):  # of a layer: moved six times, and twelve tensors of (B, T, C)
        return (step["attention_bytes"] / 12 - 12 * 16 * 1024 * 768 * size) / 6 / 1e6

    def less(kind, above, below, steps=fixed):
        return steps[above][kind] - steps[below][kind]

    clipping = less("optimizer_bytes", 8, 7)
    single, fused = (fixed[number]["optimizer_bytes"] - clipping for number in (9, 10))
    padding = less("linear_flops", 7, 6, steps)
    padding /= steps[6]["linear_flops"] + steps[6]["attention_flops"]
    blocks = cpu["12_causal_blocks"]["attention_flops"] / 6  # products, forward and backward
    blocks /= cpu["11_keep_memory"]["attention_flops"] / 7
    for number, said in [
        (0, f"= {scores(steps[0], 4):.0f} MB a layer"),
        (1, f"= {less('optimizer_bytes', 0, 1) / 1e9:.1f} GB less traffic"),
        (1, f"two reads and a write of {less('other_bytes', 1, 0) / 3e6:.0f} MB"),
        (3, f"= {less('other_bytes', 3, 2) / 1e9:.1f} GB"),
        (6, f"bfloat16 are {scores(steps[5], 2):.0f} MB a layer"),
        (7, f"for {padding:.2%} more FLOPs a step".replace("%", " %")),
        (8, f"pass over {clipping / 3e6:.0f} MB of gradients"),
        (8, f"two reads and a write, {clipping / 1e9:.1f} GB"),
        (10, f"= {fused / 1e9:.1f} GB"),
        (10, f"{7 * single / fused:.0f} reads and writes instead of 7"),
        (12, f"saves {Fraction(1 - blocks)} of the work at T=256"),
    ]:
        assert said in words[list(RUNGS)[number]], said
    product = re.compile(r"((?:[\d.]+M?(?: bytes)? x )+[\d.]+M?)(?: bytes)? = ([\d.]+) (MB|GB)")
    found = [match.groups() for text in words.values() for match in product.finditer(text)]
    for factors, result, unit in found:
        terms = factors.replace("M", "e6").replace(" bytes", "").split(" x ")
        value = math.prod(map(float, terms)) / {"MB": 1e6, "GB": 1e9}[unit]
        assert f"{value:.{len(result.partition('.')[2])}f}" == result, factors
    assert len(found) == 5


@pytest.mark.slow
def test_operators_are_those_that_a_cpu_runs():
    """The eager FP32 step on real tensors: the same operators, as often."""

    class Names(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            name = count.name_of(function)
            if function.namespace == "aten" and not function.is_view and name not in count.FREE:
                again = name in ("embedding_dense_backward", "nll_loss_backward", "masked_fill")
                Names.seen += 1 + again
            return function(*args, **(kwargs or {}))

    rung = runpy.run_path(str(RUNGS["01_weight_tying"]))
    model = rung["GPT"](rung["GPTConfig"](n_layer=1))
    x, y = torch.zeros(2, 2, 1024, dtype=torch.int64)
    with Names():
        model(x, y)[1].backward()
    assert Names.seen == count.step(RUNGS["01_weight_tying"], 2, 1)["kernels"]


def test_the_limit_of_the_baseline_by_hand(capsys):
    """19.5 TFLOP/s and 2039 GB/s: all matmuls are bound by the rate, the rest by the bandwidth."""
    step = limits.work(16)["baseline"]
    rates = find_gpu("NVIDIA A100-SXM4-80GB")._asdict()
    by_hand = (12144, 1855)  # GFLOP
    linear, attention, other, optimizer = limits.limit_ms(step, rates)
    assert linear == pytest.approx(by_hand[0] / 19.5, rel=1e-3)
    assert attention == pytest.approx(by_hand[1] / 19.5, rel=1e-3)
    assert optimizer == pytest.approx(163.04e6 * 80 / 2039e9 * 1e3, rel=1e-3)
    assert other == pytest.approx(step["other_bytes"] / 2039e9 * 1e3)
    assert main(["limits", *A100]) == 0
    total = f"{linear + attention + other + optimizer:.1f}"
    said = capsys.readouterr().out
    assert total in said and "not predictable" in said and "calculated, not measured" in said


def test_without_torch_and_at_once():
    code = "import sys; from ladder.commands import main; main(['limits', '--gpu', 'T4']); "
    code += "assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "no bf16 units" in done.stdout


def test_every_gpu_has_a_source_and_one_set_of_rates():
    assert all(gpu.source.startswith(("https://", "calculated: ")) for gpu in DATA_SHEETS.values())
    for gpu in {*DATA_SHEETS.values()}:
        assert [one for one in {*DATA_SHEETS.values()} if one.name == gpu.name] == [gpu]
        if gpu.source.startswith("calculated"):
            sm, flop, ghz = map(float, re.findall(r"[\d.]+", gpu.source))
            assert sm * flop * ghz / 1e3 == pytest.approx(gpu.bf16, rel=1e-3), gpu


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("NVIDIA A100-SXM4-80GB\nNVIDIA T1000", "A100 SXM 80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 40GB"),
        ("NVIDIA H100 NVL", None),  # its other rates are not looked up
    ],
)
def test_the_gpu_of_this_machine(driver, name, monkeypatch):
    done = subprocess.CompletedProcess([], 0, driver)
    monkeypatch.setattr(subprocess, "run", lambda *words, **options: done)
    assert limits.here() == name


CPU = {"peak_flops": 1e12, "peak_dtype": "bfloat16", "fp32_flops": 2e11, "copy_bytes_per_s": 2e10}


@pytest.mark.parametrize(
    ("stem", "facts", "run", "parts"),
    [
        ("12_causal_blocks", CPU, {}, ("cpu", "bf16", 1e12, 2e10)),
        ("02_tf32", CPU, {}, ("cpu", "tf32", 2e11, 2e10)),
        ("02_tf32", {}, {"device": "NVIDIA L4", "T": "1024"}, ("cuda", "tf32", 60.5e12, 300e9)),
        ("02_tf32", CPU, {"T": "1024"}, None),
        ("02_tf32", CPU, {"model": "tiny"}, None),
        ("without_02_tf32", CPU, {}, None),
        ("02_tf32", {"peak_flops": 1e12, "peak_dtype": "bfloat16"}, {}, None),  # no copy
        ("02_tf32", {}, {"device": "NVIDIA L4"}, None),  # counted at T=1024
        ("12_causal_blocks", {}, {"device": "NVIDIA L4", "T": "1024"}, None),
        ("03_bf16_autocast", {}, {"device": "Tesla T4", "T": "1024"}, None),
        ("02_tf32", {}, {"device": "NVIDIA GeForce RTX 3080", "T": "1024"}, None),
    ],
)
def test_the_limit_of_a_step_in_a_climb(stem, facts, run, parts):
    run = {"device": "AMD EPYC (2 threads)", "model": "gpt2", "B": "4", "T": "256"} | run
    limit = limits.limit_of(stem, run, facts)
    if parts is None:
        assert limit is None
        return
    device, unit, flops, bandwidth = parts
    step = limits.work(4, device)[stem]
    assert step["unit"] == unit
    assert limit[0] == pytest.approx(step["linear_flops"] / flops * 1e3)
    assert limit[2:] == pytest.approx(
        [step[f"{part}_bytes"] / bandwidth * 1e3 for part in ("other", "optimizer")]
    )


def test_the_commands_of_its_docstring_work(capsys):
    commands = re.findall(r"^ +ladder (limits.*)", limits.__doc__, re.MULTILINE)
    for command in commands:
        assert main(shlex.split(re.split("  +", command)[0])) == 0, command
    said = capsys.readouterr().out
    assert len(commands) == 4 and said.count("The limit on") == 3
    assert "(fp32 19.5, tf32 156, bf16 312 TFLOP/s, 2039 GB/s)" in said.partition("such a GPU")[2]


@pytest.mark.parametrize("name", ["H100 SXM", "h100 sxm", "NVIDIA H100 80GB HBM3"])
def test_a_gpu_by_its_words_or_by_its_driver_s_name(name):
    assert limits.find(name) == "H100 SXM"


def test_an_empty_name_of_a_gpu_is_not_taken_for_none(capsys):
    assert main(["limits", "--gpu", ""]) == 2
    assert "name one of them" in capsys.readouterr().err


def test_docs_show_what_it_prints_and_draws(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "80")
    picture = tmp_path / "limits.png"
    assert main(["limits", *A100, "--picture", str(picture)]) == 0
    *lines, written = capsys.readouterr().out.splitlines()
    printed = "\n".join(line.rstrip() for line in lines)
    assert printed.strip() in (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
    assert picture.read_bytes().startswith(b"\x89PNG") and written == f"written: {picture}"
    assert main(["limits", *A100, "--picture", str(picture)]) == 0  # anew
    picture.write_text("\x89PNG of mine")
    assert main(["limits", *A100, "--picture", str(picture)]) == 2
    assert "and not of this command" in capsys.readouterr().err
    assert picture.read_text() == "\x89PNG of mine"
    os.mkfifo(fifo := tmp_path / "fifo.png")
    assert main(["limits", *A100, "--picture", str(fifo)]) == 2
    assert capsys.readouterr().err == f"error {fifo} is not a regular file\n" and fifo.is_fifo()
