"""Models and runs of the scripts, made so that a mistake shows."""

import functools
import re

import pytest
import torch
import transformers
from helpers import SCRIPTS, SMALLER, TINY, load, rung

from ladder import machine, weights
from ladder.checkout import ROOT
from ladder.measure.notes import describe


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


# Above 10: those whose losses and gradients are those of rung 10.
SAME_MODEL = []
for number, path in SCRIPTS.items():
    numerics = describe(path).get("Numerics", "")  # without a note test_scripts.py fails
    if number > 10 and not numerics.startswith("changes the function"):
        SAME_MODEL.append(number)


def enlarged(number, vocab_size=50304):
    """The same model of every rung: tied."""
    return tiny(load(rung(number)), tied=True, vocab_size=vocab_size)


def saved_model(folder):
    """A small model of train.py, saved in `folder` as its best."""
    model = tiny(load(ROOT / "train.py"), **SMALLER)
    weights.save(folder / weights.BEST, model.config, model.state_dict(), {"val_loss": "9"})
    return model


def model_of(name, vocab_size=None):
    """The model that train.py starts with when it is given --init NAME."""
    script = load(ROOT / "train.py")
    shape, found, _ = weights.load(str(name))
    padded = shape | {"vocab_size": vocab_size or shape["vocab_size"]}
    model = script.GPT(script.GPTConfig(**padded))
    weights.fill(model, shape, found)
    return model


SHAPE = {**TINY, "vocab_size": 512}


def reference_model(tied: bool):
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        **SHAPE, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, tie_word_embeddings=tied
    )
    model = transformers.GPT2LMHeadModel(config)
    with torch.no_grad():  # away from the start, so that biases and attention matter
        for p in model.parameters():
            p.add_(torch.randn(p.shape) * 0.1)
    return model


class Spy:
    """Before an optimizer: remembers how it was made and what it was given at each step."""

    def __init__(self, params, **settings):
        super().__init__(params, **settings)
        self.settings = settings
        self.lrs = []
        self.norms = []
        type(self).made = self

    def step(self, closure=None):
        grads = []
        for group in self.param_groups:
            grads += [p.grad for p in group["params"]]
        self.norms.append(torch.nn.utils.get_total_norm(grads).item())
        self.lrs.append([group["lr"] for group in self.param_groups])
        super().step()


class SpyAdamW(Spy, torch.optim.AdamW):
    pass


class SpyMuon(Spy, torch.optim.Muon):
    pass


def uncompiled(model, **_):
    return model


def spied_run(run_main, module, steps, scale=None, growth_interval=2000, compiler=uncompiled):
    """Run main() with spies for optimizers; returns that of AdamW, and the log.

    With `scale` it multiplies float16, as on a GPU without bfloat16, and its scaler starts there,
    and doubles after `growth_interval` steps without an overflow.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim, "AdamW", SpyAdamW)
        patch.setattr(torch.optim, "Muon", SpyMuon)
        patch.setattr(torch, "compile", compiler)
        if scale:
            for place in (machine, module):
                patch.setattr(place, "half_precision", lambda _: torch.float16)
            settings = dict(init_scale=scale, growth_interval=growth_interval)
            scaler = functools.partial(torch.amp.GradScaler, **settings)
            patch.setattr(torch.amp, "GradScaler", scaler)
        log = run_main(module, "--steps", steps)
    return SpyAdamW.made, log


def skipped_steps(log) -> list[int]:
    """The steps, from 0 on, that a run skipped because a gradient overflowed float16."""
    found = [re.match(r"step (\d+) skipped", note) for note in log.notes]
    return [int(match[1]) - 1 for match in found if match]


def losses_of(log) -> list[float]:
    return [step.loss for step in log.steps]


def expected_on_cuda(number: int) -> dict[str, str]:
    """What the `effective` line of a rung says on CUDA, but for `matmul` and the compile cache."""
    return {
        "autocast": "bfloat16" if number >= 3 else "off",
        "compiled": "yes" if number >= 5 else "no",
        "attention": "fused" if number >= 6 else "math",
        "optimizer": "fused" if number >= 10 else "foreach",
    }
