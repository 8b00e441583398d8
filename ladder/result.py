"""The numbers of RESULT: what follows from the steps of a run."""

import math
from dataclasses import dataclass

from torch.nn import Module

from ladder.log import percentiles, warmup_of


@dataclass
class Result:
    """The steps that a run has done so far, and what turns them into rates."""

    times: list[float]  # of these steps, in seconds
    losses: list[float]
    steps_left: int
    tokens_per_step: int
    flops_per_token: int
    peak_flops: float | None  # FLOP/s of one device; None: unknown
    devices: int

    def numbers(self) -> dict[str, float | None]:
        """By key, rounded; what is not known or not finite is None."""
        ms = [seconds * 1e3 for seconds in self.times]
        measured = ms[warmup_of(len(ms) + self.steps_left) :]
        p10, median, p90 = percentiles(measured)
        tok_per_s = self.tokens_per_step * 1e3 / median
        peak = self.devices * (self.peak_flops or math.nan)
        numbers = {
            "median_ms": median,
            "p10_ms": p10,
            "p90_ms": p90,
            "tok_per_s": tok_per_s,
            "mfu": self.flops_per_token * tok_per_s / peak,
            "first_step_ms": [*ms, math.nan][0],
            "first_loss": [*self.losses, math.nan][0],
            "final_loss": [math.nan, *self.losses][-1],
        }
        for key, value in numbers.items():
            numbers[key] = round(value, 6) if math.isfinite(value) else None
        return numbers | {"measured_steps": len(measured), "warmup_steps": len(ms) - len(measured)}


def flops_per_token(model: Module, T: int) -> int:
    """FLOPs of forward and backward per token: 6N + 12·L·C·T (PaLM paper, appendix B).

    N counts the parameters of the blocks, the last LayerNorm and the output head: embeddings are
    looked up, not multiplied.
    """
    config = model.config
    multiplied = (model.transformer.h, model.transformer.ln_f, model.lm_head)
    N = sum(p.numel() for part in multiplied for p in part.parameters())
    return 6 * N + 12 * config.n_layer * config.n_embd * T
