"""Each script of beyond/ does what it says, and its check fails when it is broken on purpose."""

import pytest
import torch
from helpers import SMALLER, TINY, load, rung, with_mistake
from models import SpyMuon, scaled, spied_run, tiny
from torch.nn import functional as F

from ladder.measure.effective import differences
from ladder.measure.scripts import branch, number_of
from ladder.run import flops_per_token

NUMBERS = [number_of(path) for path in branch("beyond")]
T, V = 48, 2048  # V is small, for speed

# For each script a check, check_NN(module, run_main, monkeypatch).


def check_21(module, run_main, monkeypatch):
    rates = [module.get_lr(step, 100) / module.MAX_LR for step in range(100)]
    found = [rates[step] for step in (0, 1, 70, 71, 85, 99)]
    assert found == pytest.approx([1 / 2, 1, 1, 29 / 30, 1 / 2, 1 / 30])
    assert set(rates[1:71]) == {1} and module.get_lr(0, 1) == module.MAX_LR
    spy, _ = spied_run(module, run_main, monkeypatch, 3)
    assert spy.settings["betas"] == (0.9, 0.999)
    expected = [module.get_lr(step, 3) for step in range(3)]
    assert spy.lrs == [[lr, lr] for lr in expected]  # of both groups


def attended(module, monkeypatch):
    """Queries, keys and values (B, nh, T, hs) of a first layer: made, and as they are attended."""
    model = tiny(module, vocab_size=V)
    made = []
    found = []

    def attend(*qkv, is_causal):
        found.extend(qkv)
        return qkv[2]

    attention = model.transformer.h[0].attn
    attention.c_attn.register_forward_hook(lambda *call: made.append(call[-1]))
    with monkeypatch.context() as patch:
        patch.setattr(F, "scaled_dot_product_attention", attend)
        attention(torch.randn(2, T, TINY["n_embd"]))
    qkv = made[0].unflatten(-1, (3, TINY["n_head"], -1))  # (B, T, 3, nh, hs)
    return qkv.permute(2, 0, 3, 1, 4), found


def turned(x):
    """x (B, nh, T, hs), whose halves are real and imaginary parts, turned by its positions."""
    pairs = x.shape[-1] // 2
    frequencies = 10000 ** (-torch.arange(pairs, dtype=torch.double) / pairs)
    angles = torch.arange(x.shape[-2])[:, None] * frequencies  # (T, hs / 2)
    numbers = torch.complex(*x.double().chunk(2, dim=-1))
    numbers = numbers * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((numbers.real, numbers.imag), dim=-1).float()


def check_22(module, _, monkeypatch):
    (q, k, v), found = attended(module, monkeypatch)
    for tensor, expected in zip(found, (turned(q), turned(k), v), strict=True):
        torch.testing.assert_close(tensor, expected, rtol=1e-4, atol=1e-4)
    model, with_table = tiny(module, vocab_size=V), tiny(load(rung(21)), vocab_size=V)
    assert flops_per_token(model, T) == flops_per_token(with_table, T)
    weights, before = model.state_dict(), with_table.state_dict()
    assert before.keys() - weights.keys() == {"transformer.wpe.weight"}
    assert weights.keys() <= before.keys()


def check_23(module, _, monkeypatch):
    (q, k, v), found = attended(module, monkeypatch)
    q, k = (x / x.square().mean(dim=-1, keepdim=True).sqrt() for x in (q, k))
    for tensor, expected in zip(found, (turned(q), turned(k), v), strict=True):
        torch.testing.assert_close(tensor, expected, rtol=1e-4, atol=1e-4)


def check_24(module, *_):
    mlp = tiny(module, vocab_size=V).transformer.h[0].mlp
    x = torch.randn(2, T, TINY["n_embd"])
    hidden = mlp.c_fc(x)
    expected = mlp.c_proj(hidden * hidden * (hidden > 0))
    torch.testing.assert_close(mlp(x), expected, rtol=1e-4, atol=1e-4)


def check_25(module, run_main, monkeypatch):
    """Every weight is in one optimizer, which gets its rate and a clipped gradient."""
    for in_half in (False, True):
        with monkeypatch.context() as patch:
            if in_half:
                scaled(patch, module, init_scale=2.0**19)
            adamw, log = spied_run(module, run_main, patch, 12)
        muon = SpyMuon.made
        weights = [*parameters(adamw), *parameters(muon)]
        assert sum(p.numel() for p in weights) == int(log.run["params"])
        assert len(parameters(muon)) == 4 * SMALLER["n_layer"]
        skipped = log.result.get("skipped_steps", 0)
        assert (skipped > 0) == in_half
        rates = [module.get_lr(step, 12) for step in range(skipped, 12)]
        assert adamw.lrs == [[lr, lr] for lr in rates]  # of both groups
        assert muon.lrs == [[lr] for lr in rates]
        for ours, theirs in zip(adamw.norms, muon.norms, strict=True):
            assert ours**2 + theirs**2 == pytest.approx(1, abs=0.01)
    assert adamw.param_groups[0]["weight_decay"] == muon.settings["weight_decay"] == 0.1
    assert muon.param_groups[0]["adjust_lr_fn"] == "match_rms_adamw"


def parameters(optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


@pytest.mark.parametrize("number", NUMBERS)
def test_script_does_what_it_says(number, run_main, monkeypatch):
    globals()[f"check_{number}"](load(rung(number)), run_main, monkeypatch)


# Mistakes that people make there: what stands in the code, and what stands there instead.
MISTAKES = [
    (21, "(steps - step) / cooldown", "(steps - 1 - step) / cooldown"),  # the last step is lost
    (21, "(0.9, 0.999)", "(0.9, 0.99)"),
    (22, "rotate(k, self.cos[:T], self.sin[:T])", "k"),
    (22, "q, k = rotate(", "q, v = rotate("),
    (22, "torch.arange(0, hs, 2) / hs", "torch.arange(hs // 2) / hs"),
    (22, "angles.cos(), persistent=False", "angles.cos()"),
    (22, "x.chunk(2, dim=-1)", "x.chunk(2, dim=-2)"),
    (23, "F.rms_norm(q, q.shape[-1:])", "F.rms_norm(q, q.shape[-2:])"),
    (23, "q, k = F.rms_norm(", "q, v = F.rms_norm("),
    (24, ".square()", ""),
    (24, "F.relu(self.c_fc(x)).square()", "F.relu(self.c_fc(x).square())"),
    (25, "model.transformer.h.parameters() if", "model.parameters() if"),
    (25, ' and ".h." not in name', ""),
    (25, "for group in one.param_groups", "for group in optimizers[1].param_groups"),
    (25, "            one.step()", "            self.optimizers[1].step()"),
    (25, ', adjust_lr_fn="match_rms_adamw"', ""),
]


@pytest.mark.parametrize(("number", "right", "wrong"), MISTAKES)
def test_mistake_is_caught(number, right, wrong, run_main, monkeypatch, tmp_path):
    module = load(with_mistake(rung(number), right, wrong, tmp_path / "broken.py"))
    with pytest.raises((AssertionError, RuntimeError)):
        globals()[f"check_{number}"](module, run_main, monkeypatch)


@pytest.mark.cuda
@pytest.mark.parametrize("number", NUMBERS)
def test_trains_on_cuda(number, cuda_log):
    log = cuda_log(number)
    assert differences([log]) == [] and log.effective["compiled"] == "yes"
    assert log.steps[-1]["loss"] < log.steps[0]["loss"]
