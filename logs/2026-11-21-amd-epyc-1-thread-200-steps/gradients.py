"""Gradients of 124M at its start, one batch of tinyshakespeare: how far from FP32's?

Prints, for rung 03 (bf16 autocast, nothing else that rounds) and rung 12, the relative error of
all gradients together and of the worst parameter, beside the FP32 baseline with the same weights.
"""

import importlib.util
from pathlib import Path

import torch

from ladder.data import Batches, load_corpus


def load(name):
    spec = importlib.util.spec_from_file_location(name, Path(name))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def gradients(module, weights, x, y, autocast):
    model = module.GPT(module.GPTConfig(vocab_size=50304))
    model.lm_head.weight = model.transformer.wte.weight  # the baseline's two are one here
    model.load_state_dict(weights)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        _, loss = model(x, y)
    loss.backward()
    return {name: p.grad for name, p in model.named_parameters()}


top = load("speedups/12_causal_blocks.py")
torch.manual_seed(1337)
weights = top.GPT(top.GPTConfig()).state_dict()
x, y = next(Batches(load_corpus(None, print), 4, 256))
exact = gradients(load("baseline.py"), weights, x, y, autocast=False)
size = sum(g.square().sum() for g in exact.values()).sqrt()
for name, autocast in (
    ("speedups/12_causal_blocks.py", False),
    ("speedups/03_bf16_autocast.py", True),
    ("speedups/12_causal_blocks.py", True),
):
    found = gradients(load(name), weights, x, y, autocast)
    off = {key: (found[key] - g).norm() for key, g in exact.items()}
    worst = max(off, key=lambda key: off[key] / exact[key].norm())
    together = (sum(d.square() for d in off.values()).sqrt() / size).item()
    print(f"{name} autocast={autocast}: all {together:.2e}, ", end="")
    print(f"worst {(off[worst] / exact[worst].norm()).item():.2e} ({worst})")
