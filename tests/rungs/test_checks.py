"""Each rung does what it says, and the check for it fails when the rung is broken on purpose."""

import ctypes
import functools
import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from helpers import AUTOCAST, TINY, load, random_batch, rung, with_mistake
from models import scaled, spied_run, tiny
from torch.nn import functional as F

from ladder.measure.scripts import number_of, rungs_for

NUMBERS = [number_of(path) for path in rungs_for("cpu")[1:]]

# For each rung a check, check_NN(module, run_main, monkeypatch), which fails unless the rung does
# what it says.


def check_01(module, *_):
    model = tiny(module)
    assert model.lm_head.weight is model.transformer.wte.weight


def check_02(module, run_main, _):
    run_main(module, "--steps", 2)
    assert torch.get_float32_matmul_precision() == "high"


def check_03(module, run_main, monkeypatch):
    log = run_main(module, "--steps", 2)
    assert log.effective["autocast"] == AUTOCAST and "loss_scale" not in log.result
    # On this CPU a literal "cpu" would pass: the device type must be that of the device in use.
    source = Path(module.__file__).read_text()
    for function in ("torch.autocast", "torch.amp.GradScaler"):
        assert re.findall(rf"{function}\(([^,]*),", source) == ["device.type"], function
    with monkeypatch.context() as patch:
        scaled(patch, module, init_scale=2.0**19)
        spy, log = spied_run(module, run_main, patch, 12)
    skipped = log.result.get("skipped_steps", 0)
    assert log.effective["autocast"] == "float16" and 2 <= skipped <= 8
    assert log.result["loss_scale"] == 2 ** (19 - skipped)
    assert len(spy.norms) == 12 - skipped and 0 < max(spy.norms) < 100  # of gradients, unscaled


def check_04(module, *_):
    torch.manual_seed(0)
    for name, p in module.GPT(module.GPTConfig(**TINY)).named_parameters():
        if p.dim() == 2:
            expected = 0.02
            if name.endswith("c_proj.weight"):
                expected = 0.02 / math.sqrt(2 * 4)
            assert p.std().item() == pytest.approx(expected, rel=0.03), name


def check_05(module, run_main, monkeypatch):
    # Traced, but without kernels, which take a minute to build: the logs below are of those.
    traced = functools.partial(torch.compile, backend="eager")
    monkeypatch.setattr(torch, "compile", traced)
    assert run_main(module, "--steps", 2).effective["compiled"] != "no"


def check_06(module, run_main, monkeypatch):
    _, log = spied_run(module, run_main, monkeypatch, 2)
    assert log.effective["attention"] == "flash"
    model, reference = tiny(module), tiny(load(rung(5)))
    assert not list(model.buffers())
    model.load_state_dict(reference.state_dict())
    x, y = random_batch()
    for out, expected in zip(model(x, y), reference(x, y), strict=True):
        torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)


def check_07(module, *_):
    assert module.GPTConfig().vocab_size == 50304
    model, reference = tiny(module), tiny(load(rung(6)))
    weights = reference.state_dict()
    for name in ("transformer.wte.weight", "lm_head.weight"):
        weights[name] = torch.cat([weights[name], torch.zeros(47, 128)])
    model.load_state_dict(weights)
    x, y = random_batch()
    logits, loss = model(x, y)
    expected, before = reference(x, y)
    torch.testing.assert_close(logits[..., :50257], expected, rtol=1e-4, atol=1e-4)
    # The padding rows cost what their share of the softmax costs, and nothing else.
    share = (logits.logsumexp(-1) - expected.logsumexp(-1)).mean()
    assert (loss - before).item() == pytest.approx(share.item(), abs=1e-5)
    assert share > 0


def check_08(module, run_main, monkeypatch):
    for in_half in (False, True):
        with monkeypatch.context() as patch:
            if in_half:
                scaled(patch, module)
            spy, log = spied_run(module, run_main, patch, 3)
        for step, clipped in zip(log.steps, spy.norms, strict=True):
            assert 1.001 < step["norm"] < 100  # otherwise there was nothing to clip
            assert clipped == pytest.approx(1, abs=1e-3)
    assert spy.settings["betas"] == (0.9, 0.95) and spy.settings["eps"] == 1e-8
    decay, no_decay = spy.param_groups
    for group, weight_decay, dims in ((decay, 0.1, {2}), (no_decay, 0.0, {1})):
        assert group["weight_decay"] == weight_decay
        assert {p.dim() for p in group["params"]} == dims


def check_09(module, run_main, monkeypatch):
    rates = [module.get_lr(step, 50) for step in range(50)]
    found = [rates[step] for step in (0, 4, 9, 29, 49)]  # 29: half way down the cosine
    assert found == pytest.approx([6e-5, 3e-4, 6e-4, 3.3e-4, 6e-5])
    assert rates[10] < rates[9] and module.get_lr(0, 1) == pytest.approx(6e-4)
    spy, log = spied_run(module, run_main, monkeypatch, 5)
    expected = [module.get_lr(step, 5) for step in range(5)]
    assert spy.lrs == [[lr, lr] for lr in expected]  # of both groups
    assert [step["lr"] for step in log.steps] == pytest.approx(expected, rel=1e-4)


def check_10(module, run_main, monkeypatch):
    _, log = spied_run(module, run_main, monkeypatch, 2)
    assert log.effective["optimizer"] == "fused"


def check_11(module, run_main, monkeypatch):
    asked = {}

    def mallopt(name, value):
        asked[name] = value
        return True

    libc = SimpleNamespace(mallopt=mallopt, malloc=ctypes.CDLL(None).malloc)
    monkeypatch.setattr(module.ctypes, "CDLL", lambda _: libc)
    spied_run(module, run_main, monkeypatch, 1)
    M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
    for name in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
        assert asked.get(name, 0) > 2**29


def check_12(module, run_main, monkeypatch):
    for T in (48, 128, 300):  # a part of a block, a whole one, and more than two
        torch.manual_seed(T)
        qkv = torch.randn(3, 2, 4, T, 32)
        expected = F.scaled_dot_product_attention(*qkv, is_causal=True)
        torch.testing.assert_close(module.causal_blocks(*qkv), expected, rtol=1e-4, atol=1e-5)
    # Only a CPU leaves the fused kernel: the meta device stands for all others.
    calls = []

    def attend(q, k, v, is_causal):
        calls.append(is_causal)
        return q

    with monkeypatch.context() as patch, torch.device("meta"):
        patch.setattr(F, "scaled_dot_product_attention", attend)
        model = module.GPT(module.GPTConfig(**TINY))
        model(torch.zeros(1, 8, dtype=torch.long))
    assert calls == [True] * 4
    _, log = spied_run(module, run_main, monkeypatch, 2)
    assert log.effective["attention"] == "math"


@pytest.mark.parametrize("number", NUMBERS)
def test_rung_does_what_it_says(number, run_main, monkeypatch):
    check = globals()[f"check_{number:02d}"]
    check(load(rung(number)), run_main, monkeypatch)


@pytest.mark.parametrize("number", [0, 1])
def test_rungs_below_02_are_fp32_where_an_image_presets_tf32(number, run_main):
    """NVIDIA's images set TORCH_ALLOW_TF32_CUBLAS_OVERRIDE: precision begins as "high"."""
    torch.set_float32_matmul_precision("high")
    run_main(load(rung(number)), "--steps", 1)
    assert torch.get_float32_matmul_precision() == "highest"


# Mistakes that people make there: what stands in the code, and what stands there instead.
MISTAKES = [
    (
        1,
        "self.lm_head.weight = self.transformer.wte.weight",
        "self.transformer.wte.weights = self.lm_head.weight",
    ),
    (2, 'torch.set_float32_matmul_precision("high")', "torch.matmul_precision = 'high'"),
    (3, "enabled=dtype != torch.float32", "enabled=dtype == torch.bfloat16"),
    (3, "scaler.step(optimizer)", "optimizer.step()"),
    (4, '"c_proj.weight"', '"c_projection.weight"'),
    (5, "model = torch.compile(model)", "torch.compile(model)"),
    (6, "k, v, is_causal=True", "v, k, is_causal=True"),
    (7, "int = 50304", "int = 50340"),
    (8, "scaler.unscale_(optimizer)", "pass"),
    (8, "clip_grad_norm_(model.parameters(), 1.0)", "clip_grad_norm_(decay, 1.0)"),
    (9, 'group["lr"] = lr', 'group["learning_rate"] = lr'),
    (10, ", fused=True", ""),
    (11, "(M_MMAP_THRESHOLD, 2**30)", "(M_MMAP_THRESHOLD, 2**16)"),
    (12, "triu(start + 1)", "triu(start)"),
]


@pytest.mark.parametrize(("number", "right", "wrong"), MISTAKES)
def test_mistake_is_caught(number, right, wrong, run_main, monkeypatch, tmp_path):
    check = globals()[f"check_{number:02d}"]
    module = load(with_mistake(rung(number), right, wrong, tmp_path / "broken.py"))
    with pytest.raises((AssertionError, RuntimeError)):
        check(module, run_main, monkeypatch)
