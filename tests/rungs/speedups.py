"""What each rung of speedups/ and cpu/ must do, by its name, and mistakes that its check must find.

check_NAME(module, base, run): `module` is the script, `base` the one that it goes on from, and
run(steps) is spied_run() of models.py.
"""

import ctypes
import functools
import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from helpers import AUTOCAST, TINY, random_batch
from models import skipped_steps, tiny
from torch.nn import functional as F


def check_weight_tying(module, *_):
    model = tiny(module)
    assert model.lm_head.weight is model.transformer.wte.weight


def check_tf32(module, base, run):
    run(2)
    assert torch.get_float32_matmul_precision() == "high"


def check_bf16_autocast(module, base, run):
    _, log = run(2)
    assert log.effective["autocast"] == AUTOCAST and "loss_scale" not in log.result
    # On this CPU a literal "cpu" would pass: the device type must be that of the device in use.
    source = Path(module.__file__).read_text()
    for function in ("torch.autocast", "torch.amp.GradScaler"):
        assert re.findall(rf"{function}\(([^,]*),", source) == ["device.type"], function
    spy, log = run(12, scale=2.0**19, growth_interval=1)  # overflows anywhere, as in check_muon
    skipped = log.result["skipped_steps"]
    done = 12 - skipped
    assert log.effective["autocast"] == "float16" and skipped >= 2
    assert log.result["loss_scale"] == 2 ** (19 + done - skipped)
    assert len(spy.norms) == done and 0 < max(spy.norms) < 100  # of gradients, unscaled


def check_residual_scaling(module, *_):
    torch.manual_seed(0)
    for name, p in module.GPT(module.GPTConfig(**TINY)).named_parameters():
        if p.dim() == 2:
            expected = 0.02
            if name.endswith("c_proj.weight"):
                expected = 0.02 / math.sqrt(2 * 4)
            assert p.std().item() == pytest.approx(expected, rel=0.03), name


def check_torch_compile(module, base, run):
    # Traced, but without kernels, which take a minute to build.
    traced = functools.partial(torch.compile, backend="eager")
    _, log = run(2, compiler=traced)
    assert log.effective["compiled"] != "no"


def check_flash_attention(module, base, run):
    _, log = run(2)
    assert log.effective["attention"] == "flash"
    model = tiny(module)
    assert not list(model.buffers())  # such as a mask
    x, _ = random_batch()
    torch.testing.assert_close(model(x), tiny(base)(x), rtol=1e-4, atol=1e-4)


def check_vocab_50304(module, base, _):
    model, reference = tiny(module), tiny(base)
    weights = reference.state_dict()
    for name in ("transformer.wte.weight", "lm_head.weight"):
        weights[name] = F.pad(weights[name], (0, 0, 0, 47))  # 47 rows of zeros
    model.load_state_dict(weights)
    x, y = random_batch()
    torch.testing.assert_close(model(x)[..., :50257], reference(x), rtol=1e-4, atol=1e-4)
    assert model(x, y) > reference(x, y)  # the padding rows take their share of the softmax


def check_adamw_clipping(module, base, run):
    for scale in (None, 2.0**18):
        spy, log = run(8, scale=scale, growth_interval=1)  # overflows anywhere, as in check_muon
        skipped = skipped_steps(log)
        done = [step for k, step in enumerate(log.steps) if k not in skipped]
        for step, clipped in zip(done, spy.norms, strict=True):
            assert 1.001 < step.more["norm"] < 100  # otherwise there was nothing to clip
            assert clipped == pytest.approx(1, abs=1e-3)
    assert spy.settings["betas"] == (0.9, 0.95) and spy.settings["eps"] == 1e-8
    decay, no_decay = spy.param_groups
    for group, weight_decay, dims in ((decay, 0.1, {2}), (no_decay, 0.0, {1})):
        assert group["weight_decay"] == weight_decay
        assert {p.dim() for p in group["params"]} == dims


def check_cosine_lr(module, base, run):
    rates = [module.get_lr(step, 50) for step in range(50)]
    found = [rates[step] for step in (0, 4, 9, 29, 49)]  # 29: half way down the cosine
    assert found == pytest.approx([6e-5, 3e-4, 6e-4, 3.3e-4, 6e-5])
    assert rates[10] < rates[9] and module.get_lr(0, 1) == pytest.approx(6e-4)
    spy, log = run(5)
    expected = [module.get_lr(step, 5) for step in range(5)]
    assert spy.lrs == [[lr, lr] for lr in expected]  # of both groups
    assert [step.more["lr"] for step in log.steps] == pytest.approx(expected, rel=1e-4)


def check_fused_adamw(module, base, run):
    _, log = run(2)
    assert log.effective["optimizer"] == "fused"


def check_keep_memory(module, base, run):
    asked = {}

    def mallopt(name, value):
        asked[name] = value
        return True

    libc = SimpleNamespace(mallopt=mallopt, malloc=ctypes.CDLL(None).malloc)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.ctypes, "CDLL", lambda _: libc)
        run(1)
    M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
    for name in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
        assert asked.get(name, 0) > 2**29


def check_causal_blocks(module, base, run):
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

    with pytest.MonkeyPatch.context() as patch, torch.device("meta"):
        patch.setattr(F, "scaled_dot_product_attention", attend)
        model = module.GPT(module.GPTConfig(**TINY))
        model(torch.zeros(1, 8, dtype=torch.long))
    assert calls == [True] * 4
    _, log = run(2)
    assert log.effective["attention"] == "math"


# The script, what stands in its code, and what stands there instead.
MISTAKES = [
    (
        "weight_tying",
        "self.lm_head.weight = self.transformer.wte.weight",
        "self.transformer.wte.weights = self.lm_head.weight",
    ),
    ("tf32", 'torch.set_float32_matmul_precision("high")', "torch.matmul_precision = 'high'"),
    ("bf16_autocast", "enabled=dtype != torch.float32", "enabled=dtype == torch.bfloat16"),
    ("bf16_autocast", "scaler.step(optimizer)", "optimizer.step()"),
    ("residual_scaling", '"c_proj.weight"', '"c_projection.weight"'),
    ("torch_compile", "model = torch.compile(model)", "torch.compile(model)"),
    ("flash_attention", "k, v, is_causal=True", "v, k, is_causal=True"),
    ("vocab_50304", "int = 50304", "int = 50340"),
    ("adamw_clipping", "scaler.unscale_(optimizer)", "pass"),
    ("adamw_clipping", "clip_grad_norm_(model.parameters(), 1.0)", "clip_grad_norm_(decay, 1.0)"),
    ("cosine_lr", 'group["lr"] = lr', 'group["learning_rate"] = lr'),
    ("fused_adamw", ", fused=True", ""),
    ("keep_memory", "(M_MMAP_THRESHOLD, 2**30)", "(M_MMAP_THRESHOLD, 2**16)"),
    ("causal_blocks", "triu(start + 1)", "triu(start)"),
]
