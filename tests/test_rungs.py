"""Each rung does what it says, and the check for it fails when the rung is broken on purpose."""

import ctypes
import functools
import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import test_recordings
import torch
from conftest import (
    AUTOCAST,
    SCRIPTS,
    SMALL,
    TINY,
    load,
    random_batch,
    relative_error,
    rung,
    with_mistake,
)
from ladder.show.docstrings import describe
from torch.nn import functional as F

from ladder import machine
from ladder.cli import MODELS
from ladder.log import read_log
from ladder.measure.scripts import ROOT, all_scripts, before, chain, number_of
from ladder.show.publishable import low_precision

RUNGS = range(1, len(all_scripts()))
STEPS = 4
ROUNDING = 2e-3  # nats: four times what bfloat16 moves a loss here, a quarter of what clipping does


def tiny(module, tied=False, **sizes):
    """A script's model in FP32, with weights so large that a mistake is no matter of rounding.

    Scripts that are tied, or `tied` here, get the same weights. The sizes are tiny's, if not given.
    """
    model = module.GPT(module.GPTConfig(**(TINY | sizes)))
    if tied:
        model.lm_head.weight = model.transformer.wte.weight
    torch.manual_seed(0)
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.1)
    return model


def enlarged(number, vocab_size=50304):
    """The same model of every rung and candidate: tied."""
    return tiny(load(rung(number)), tied=True, vocab_size=vocab_size)


class SpyAdamW(torch.optim.AdamW):
    """AdamW that remembers how it was made and what it was given at each step."""

    def __init__(self, params, **settings):
        super().__init__(params, **settings)
        self.settings = settings
        self.lrs = []
        self.norms = []
        SpyAdamW.made = self

    def step(self):
        grads = []
        for group in self.param_groups:
            grads += [p.grad for p in group["params"]]
        self.norms.append(torch.nn.utils.get_total_norm(grads).item())
        self.lrs.append([group["lr"] for group in self.param_groups])
        super().step()


def scaled(patch, module, init_scale=2.0**16):
    """From now on this script multiplies float16, as on a GPU without bfloat16.

    Its scaler starts at `init_scale`.
    """
    for place in (machine, module):
        patch.setattr(place, "half_precision", lambda _: torch.float16)
    scaler = functools.partial(torch.amp.GradScaler, init_scale=init_scale)
    patch.setattr(torch.amp, "GradScaler", scaler)


def spied_run(module, run_main, monkeypatch, steps):
    """Run main() eagerly with the spy for an optimizer; returns the spy and the log."""
    with monkeypatch.context() as patch:
        patch.setattr(torch.optim, "AdamW", SpyAdamW)
        patch.setattr(torch, "compile", lambda model, **_: model)
        log = run_main(module, "--steps", steps)
    return SpyAdamW.made, log


@pytest.fixture(scope="module")
def log_of(shard, tmp_path_factory):
    """log_of(script, compiled): its log in bfloat16; each runs once. One wide layer compiles
    quickly, and clipping shows in its losses."""

    @functools.cache
    def run(script: Path, compiled: bool):
        folder = tmp_path_factory.mktemp("logs")
        flags = [*SMALL, "--steps", STEPS, "--seed", 1337, "--data", shard, "--log-dir", folder]
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()  # what says whether the compile cache was warm
        wide = dict(n_layer=1, n_head=8, n_embd=256, vocab_size=320)
        if number_of(script) >= 7:
            wide["vocab_size"] = 384
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(MODELS, "tiny", wide)
            patch.setattr(machine, "half_precision", lambda _: torch.bfloat16)
            if not compiled:
                patch.setattr(torch, "compile", lambda model, **_: model)
            load(script).main(list(map(str, flags)))
        torch.set_float32_matmul_precision("highest")
        return read_log(next(folder.glob("*.log")))

    return run


def losses(log) -> list[float]:
    return [step["loss"] for step in log.steps]


def check_of(script: Path, names: dict):
    """check_NN of a rung or candidate among the names of a test module."""
    return names[f"check_{number_of(script):02d}"]


# One check for each rung, which fails unless it does what it says:
# check_NN(module, run_main, monkeypatch).


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


TIE = "self.lm_head.weight = self.transformer.wte.weight"
# Mistakes as people make them: (rung, what stands there, what stands there instead).
BREAKS = [
    (1, TIE, "self.transformer.wte.weights = self.lm_head.weight"),
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


@pytest.mark.parametrize("number", RUNGS)
def test_rung_does_what_it_says(number, run_main, monkeypatch):
    check_of(rung(number), globals())(load(rung(number)), run_main, monkeypatch)


@pytest.mark.parametrize(("number", "right", "wrong"), BREAKS)
def test_mistake_is_caught(number, right, wrong, run_main, monkeypatch, tmp_path):
    check = check_of(rung(number), globals())
    module = load(with_mistake(rung(number), right, wrong, tmp_path / "broken.py"))
    with pytest.raises((AssertionError, RuntimeError)):
        check(module, run_main, monkeypatch)


EAGER = [(script, False) for script in chain()[1:]]
COMPILED = [pytest.param(script, True, marks=pytest.mark.slow) for script in all_scripts()[6:]]


@pytest.mark.parametrize(
    ("script", "compiled"), EAGER + COMPILED, ids=lambda value: getattr(value, "stem", value)
)
def test_numerics_are_as_declared(script, compiled, log_of):
    """The losses of a script are to those of the one before it as its docstring declares."""
    declared = describe(script)["Numerics"]
    old = losses(log_of(before(script), compiled))
    new = losses(log_of(script, compiled or script == rung(5)))
    if declared.startswith("identical"):
        assert new == old
    elif declared.startswith("rounding"):
        assert new == pytest.approx(old, abs=ROUNDING)
    elif declared.startswith("low precision"):
        assert new == pytest.approx(old, abs=0.05) and new != old
    else:
        assert declared.startswith("changes the function")
        assert len(new) == len(old) and new != pytest.approx(old, abs=ROUNDING)


SLOW = [pytest.param(number, marks=pytest.mark.slow) for number in RUNGS[5:]]


@pytest.mark.parametrize("number", [*range(6), *SLOW])
def test_effective_line_accumulates(number, log_of):
    """What a rung gained is still there in every later one."""
    effective = dict(log_of(rung(number), number >= 5).effective)
    matmul = effective.pop("matmul")
    assert matmul == "fp32" or (matmul == "tf32" and number >= 2)  # few CPUs have TF32
    expected = test_recordings.expected(number)
    if expected["attention"] == "fused":  # of rung 12 and the rungs that go on from it, math
        in_blocks = "causal_blocks(" in rung(number).read_text()
        expected["attention"] = "math" if in_blocks else "flash"
    if expected["optimizer"] == "foreach":
        expected["optimizer"] = "for-loop"
    assert effective == expected


def gradients(number):
    """Those of all parameters on one batch, by name."""
    model = enlarged(number, vocab_size=320)
    _, loss = model(*random_batch(T=200, V=320))
    loss.backward()
    return {name: p.grad for name, p in model.named_parameters()}


BEYOND_TEN = [n for n, path in SCRIPTS.items() if n > 10 and not low_precision(path)]


@pytest.mark.parametrize("number", BEYOND_TEN)
def test_gradients_beyond_ten_are_those_of_the_baseline(number, monkeypatch):
    """In FP32. Losses of a few steps show little of a wrong gradient."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda x: x)
    found = gradients(number)
    for name, exact in gradients(0).items():
        assert relative_error(found[name], exact) < 1e-4, name


@pytest.mark.parametrize("number", SCRIPTS)
def test_docstring_has_its_fields(number):
    path = rung(number)
    fields = describe(path)
    assert fields["Title"].startswith(f"{number:02d} ")
    assert fields["Run"] == f"python {path.relative_to(ROOT).as_posix()}"
