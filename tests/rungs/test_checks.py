"""Each script does what it says, and the check for it fails when it is broken on purpose.

The checks and the mistakes are in speedups.py, memory.py and beyond.py, by the name of a script
without its number.
"""

from functools import partial

import pytest
import torch
from helpers import load, rung, with_mistake
from models import spied_run
from rungs import beyond, memory, speedups
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

from ladder.checkout import ROOT
from ladder.cli import MODELS
from ladder.measure.scripts import all_scripts, base_of
from ladder.memory import (
    RESERVE,
    ddp_batch,
    memory_on_sale,
    parameters,
    power_of_two_that_fits,
)

SCRIPTS = {path.stem[3:]: path for path in all_scripts()[1:]}
CHECKS = vars(speedups) | vars(memory) | vars(beyond)
MISTAKES = speedups.MISTAKES + memory.MISTAKES + beyond.MISTAKES


def check(name, module, run_main):
    """Raise an error unless `module`, the script of this name or a copy, does what it says."""
    base = load(base_of(SCRIPTS[name]))
    CHECKS[f"check_{name}"](module, base, partial(spied_run, run_main, module))


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_does_what_it_says(name, run_main):
    check(name, load(SCRIPTS[name]), run_main)


@pytest.mark.parametrize(("name", "right", "wrong"), MISTAKES)
def test_mistake_is_caught(name, right, wrong, run_main, tmp_path):
    module = load(with_mistake(SCRIPTS[name], right, wrong, tmp_path / "broken.py"))
    with pytest.raises((AssertionError, RuntimeError)):
        check(name, module, run_main)


def test_each_script_has_a_mistake():
    assert {name for name, *_ in MISTAKES} == SCRIPTS.keys()


@pytest.mark.parametrize("number", [0, 1])
def test_rungs_below_02_are_fp32_where_an_image_presets_tf32(number, run_main):
    """NVIDIA's images set TORCH_ALLOW_TF32_CUBLAS_OVERRIDE: precision begins as "high"."""
    torch.set_float32_matmul_precision("high")
    run_main(load(rung(number)), "--steps", 1)
    assert torch.get_float32_matmul_precision() == "highest"


# ------------------------------------------------------------------ what memory/ is for


def peak(script, size: str, B: int, T: int = 1024) -> float:
    """The most bytes that tensors take in two training steps, counted on fake tensors: weights,
    moments and gradients too, which are kept, as where several batches make a step."""
    with FakeTensorMode():
        model = script.GPT(script.GPTConfig(**MODELS[size]))
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        ids = torch.zeros(B, T, dtype=torch.int64)
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            for _ in range(2):  # the first one makes the moments
                with torch.autocast("cpu", torch.bfloat16):
                    _, loss = model(ids, ids)
                loss.backward()
                optimizer.step()
                tracker.reset_mod_stats()
    (peak,) = tracker.get_tracker_snapshot("peak").values()
    return peak["Total"]


@pytest.mark.slow
def test_recompute_fits_what_did_not():
    """ddp_run.py --recompute does what 32 does."""
    assert peak(load(rung(32)), "gpt2-medium", 8) < 12e9 < peak(load(rung(10)), "gpt2-medium", 8)


@pytest.mark.slow
@pytest.mark.parametrize("B", [8, 64])
def test_the_batch_of_recompute_is_within_a_twentieth_of_counted_bytes(B):
    """Its formula is that of docs/your-card.md."""
    counted = peak(load(rung(32)), "gpt2", B)
    for share, fits in {0.95: False, 1.05: True}.items():
        memory = share * counted * 9 / 8 + RESERVE
        assert (ddp_batch(memory, MODELS["gpt2"], 1024, recompute=True) >= B) == fits


def rung_10_batch(memory: float, size: dict, T: int) -> int:
    """As ddp_batch, by the formula in docs/your-card.md."""
    L, C, V = size["n_layer"], size["n_embd"], 50304
    per_token = L * 36 * C + 10 * C + 6 * V
    return power_of_two_that_fits(memory, 14 * parameters(L, C, V), T * per_token)


def test_the_table_of_what_fits():
    text = (ROOT / "docs" / "your-card.md").read_text(encoding="utf-8")
    ways = {
        "rung 10": rung_10_batch,
        "`ddp_run.py`": ddp_batch,
        "`--recompute`": partial(ddp_batch, recompute=True),
    }
    for size in ("gpt2", "gpt2-medium", "gpt2-large"):
        for way, batch in ways.items():
            fits = [batch(memory_on_sale(gb), MODELS[size], 1024) for gb in (6, 8, 12, 16, 24)]
            cells = " | ".join(f"{B or '–'}" for B in fits)
            assert f"| {size} | {way} | {cells} |\n" in text
