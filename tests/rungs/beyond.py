"""What each rung of beyond/ must do, and mistakes that its check must find: as in speedups.py."""

import pytest
import torch
from helpers import SMALLER, TINY
from models import SpyMuon, skipped_steps, tiny
from torch.nn import functional as F

from ladder.run import flops_per_token

T, V = 48, 2048  # V is small, for speed


def check_beta2(module, base, run):
    """The log's B=2 and T=64 are 128 tokens a step."""
    spy, _ = run(1)
    assert spy.settings["betas"] == (0.9, pytest.approx(0.95 ** (128 / 524288), abs=1e-9))


def check_rate_by_width(module, base, run):
    """GPT-2 124M, 768 wide, keeps its rate; a narrower model takes larger steps."""
    spy, log = run(2)
    factor = (768 / SMALLER["n_embd"]) ** 0.5
    expected = [base.get_lr(step, 2) * factor for step in range(2)]
    assert spy.lrs == [[lr, lr] for lr in expected]  # of both groups
    assert [step.more["lr"] for step in log.steps] == pytest.approx(expected, rel=1e-4)


def check_trapezoid(module, *_):
    rates = [module.get_lr(step, 100) / module.MAX_LR for step in range(100)]
    found = [rates[step] for step in (0, 18, 19, 70, 71, 85, 99)]
    assert found == pytest.approx([1 / 20, 19 / 20, 1, 1, 29 / 30, 1 / 2, 1 / 30])
    assert set(rates[19:71]) == {1} and module.get_lr(0, 1) == module.MAX_LR
    assert module.get_lr(98, 5000) < module.MAX_LR == module.get_lr(99, 5000)  # not a fifth


def attended(module):
    """Queries, keys and values (B, nh, T, hs) of a first layer: made, and as they are attended."""
    model = tiny(module, vocab_size=V)
    made = []
    found = []

    def attend(*qkv, is_causal):
        found.extend(qkv)
        return qkv[2]

    attention = model.transformer.h[0].attn
    attention.c_attn.register_forward_hook(lambda *call: made.append(call[-1]))
    with pytest.MonkeyPatch.context() as patch:
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


def check_rope(module, base, _):
    (q, k, v), found = attended(module)
    torch.testing.assert_close(found, [turned(q), turned(k), v], rtol=1e-4, atol=1e-4)
    model, with_table = tiny(module, vocab_size=V), tiny(base, vocab_size=V)
    assert flops_per_token(model, T) == flops_per_token(with_table, T)
    removed = with_table.state_dict().keys() ^ model.state_dict().keys()
    assert removed == {"transformer.wpe.weight"}


def check_qk_norm(module, *_):
    (q, k, v), found = attended(module)
    q, k = (x / x.square().mean(dim=-1, keepdim=True).sqrt() for x in (q, k))
    torch.testing.assert_close(found, [turned(q), turned(k), v], rtol=1e-4, atol=1e-4)


def check_relu_squared(module, *_):
    mlp = tiny(module, vocab_size=V).transformer.h[0].mlp
    x = torch.randn(2, T, TINY["n_embd"])
    hidden = mlp.c_fc(x)
    expected = mlp.c_proj(hidden * hidden * (hidden > 0))
    torch.testing.assert_close(mlp(x), expected, rtol=1e-4, atol=1e-4)


def parameters(optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def check_muon(module, base, run):
    """Every weight is in one optimizer, which gets its rate and a clipped gradient in each step.

    Where a gradient overflows float16, one optimizer may do a step that the other skips: only the
    steps that both did are compared. With a scale that doubles after each of them, the overflows
    are anywhere, of 11 or of 12 steps in the last one, too.
    """
    factor = (768 / SMALLER["n_embd"]) ** 0.5
    for steps, scale in ((12, None), (11, 2.0**19), (12, 2.0**19)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "get_lr", lambda step, _: 1e-4 * (step + 1))  # tells steps apart
            adamw, log = run(steps, scale=scale, growth_interval=1)
        muon = SpyMuon.made
        weights = [*parameters(adamw), *parameters(muon)]
        assert sum(p.numel() for p in weights) == int(log.run["params"])
        assert len(parameters(muon)) == 4 * SMALLER["n_layer"]
        skipped = skipped_steps(log)
        assert (len(skipped) > 0) == (scale is not None)
        for step in range(steps):
            lr = 1e-4 * (step + 1) * factor
            if step in skipped:
                continue
            assert [lr, lr] in adamw.lrs and [lr] in muon.lrs  # AdamW has two groups
            ours = adamw.norms[adamw.lrs.index([lr, lr])]
            theirs = muon.norms[muon.lrs.index([lr])]
            assert ours**2 + theirs**2 == pytest.approx(1, abs=0.01)
    assert adamw.param_groups[0]["weight_decay"] == muon.settings["weight_decay"] == 0.1
    assert muon.param_groups[0]["adjust_lr_fn"] == "match_rms_adamw"


MISTAKES = [
    ("beta2", "0.95 ** (B * T / 524288)", "0.95 ** (B / 512)"),
    ("rate_by_width", "(768 / model.config.n_embd) ** 0.5", "768 / model.config.n_embd"),
    ("trapezoid", "(steps - step) / cooldown", "(steps - 1 - step) / cooldown"),  # the last is lost
    ("trapezoid", "min(100, steps // 5)", "steps // 5"),
    ("rope", "rotate(k, self.cos[:T], self.sin[:T])", "k"),
    ("rope", "q, k = rotate(", "q, v = rotate("),
    ("rope", "torch.arange(0, hs, 2) / hs", "torch.arange(hs // 2) / hs"),
    ("rope", "angles.cos(), persistent=False", "angles.cos()"),
    ("rope", "x.chunk(2, dim=-1)", "x.chunk(2, dim=-2)"),
    ("qk_norm", "F.rms_norm(q, q.shape[-1:])", "F.rms_norm(q, q.shape[-2:])"),
    ("qk_norm", "q, k = F.rms_norm(", "q, v = F.rms_norm("),
    ("relu_squared", ".square()", ""),
    ("relu_squared", "F.relu(self.c_fc(x)).square()", "F.relu(self.c_fc(x).square())"),
    ("muon", "model.transformer.h.parameters() if", "model.parameters() if"),
    ("muon", ' and ".h." not in name', ""),
    ("muon", "for group in one.param_groups", "for group in muon.param_groups"),
    ("muon", "scaler.step(one)", "scaler.step(muon)"),
    ("muon", ', adjust_lr_fn="match_rms_adamw"', ""),
]
