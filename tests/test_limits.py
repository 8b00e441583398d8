"""`ladder limits` and the counts behind it."""

import json
import runpy
import subprocess
import sys

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ladder.commands import count, limits, main
from ladder.commands.scripts import all_scripts
from ladder.files import ROOT
from ladder.machine import PEAK_BF16_FLOPS

A100 = ["--gpu", "A100 SXM"]
RUNGS = {path.stem: path for path in all_scripts()}


@pytest.mark.parametrize("stem", ["baseline", "03_bf16_autocast", "10_fused_adamw"])
def test_work_json_is_what_a_recount_gives(stem):
    """On torch 2.9 and 2.13 to the last byte; 2.15 fuses one small operator less."""
    counted, again = json.loads(limits.WORK.read_text())[stem], count.count(RUNGS[stem])
    assert again.keys() == counted.keys()
    for kind, numbers in counted.items():
        exact = kind not in ("other_bytes", "kernels")
        same = numbers if exact else pytest.approx(numbers, rel=0.002)
        assert again[kind] == same, kind


def test_work_json_has_every_rung_up_to_ten():
    assert list(json.loads(limits.WORK.read_text())) == list(RUNGS)[:11]


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
    rates = dict(zip((*limits.UNITS, "bandwidth"), limits.GPUS["A100 SXM 80GB"], strict=True))
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
    code = "import sys; from ladder.commands import main; main(['limits']); "
    code += "assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_rates_are_the_peaks_of_mfu():
    names = {"H100 SXM": "H100 80GB HBM3", "H200 SXM": "H200", "A100 40GB": "A100"}
    names |= {"A100 SXM 80GB": "A100", "A100 PCIe 80GB": "A100"}
    for gpu, (*_, bf16, _) in limits.GPUS.items():
        short = names.get(gpu, gpu.replace("RTX", "GeForce RTX"))
        if bf16:
            assert PEAK_BF16_FLOPS[f"NVIDIA {short}"] == bf16 * 1e12, gpu


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--gpu", "A100"], "fits A100 SXM 80GB, A100 PCIe 80GB, A100 40GB: name one of"),
        (["--gpu", "Voodoo"], "is not in the table"),
        ([*A100, "--batch-size", "0"], "expected at least 1"),
        ([*A100, "--bandwidth", "-1"], "expected a rate above 0"),
        (["--fp32", "20"], "these rates are missing: --tf32, --bf16, --bandwidth"),
    ],
)
def test_bad_input(flags, said, capsys):
    assert main(["limits", *flags]) == 2
    assert said in capsys.readouterr().err


def test_own_rates_and_a_gpu_without_units(capsys):
    rates = ["--fp32", "10", "--tf32", "20", "--bf16", "30", "--bandwidth", "400"]
    assert main(["limits", *rates]) == 0
    assert "fp32 10, tf32 20, bf16 30 TFLOP/s, 400 GB/s" in capsys.readouterr().out
    assert main(["limits", "--gpu", "T4"]) == 0
    assert "no bf16 units" in capsys.readouterr().out


def test_docs_show_what_it_prints_and_draws(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "80")
    picture = tmp_path / "limits.png"
    assert main(["limits", *A100, "--picture", str(picture)]) == 0
    printed = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())
    assert printed.strip() in (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
    assert picture.read_bytes().startswith(b"\x89PNG")
