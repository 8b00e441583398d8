"""What others reported: one climb on an A100, and one step on each of twenty GPUs."""

import csv
import json
from pathlib import Path

from ladder.measure.work import roofline_ms, work

HERE = Path(__file__).parent


def reported_climb() -> dict:
    """reported.json: the one climb in README.md that is not ours."""
    return json.loads(HERE.joinpath("reported.json").read_text("utf-8"))


def reported_gpus() -> list[dict]:
    """reported_gpus.csv: a row per GPU and B, what nearly rung 10 took elsewhere."""
    text = HERE.joinpath("reported_gpus.csv").read_text(encoding="utf-8")
    gpus = []
    for row in csv.DictReader(text.splitlines()[1:]):
        gpu = {"gpu": row.pop("gpu")}
        for key, number in row.items():
            gpu[key] = float(number)
        gpus.append(gpu)
    return gpus


def roofline_fraction(row: dict, rates: dict[str, float]) -> float:
    """Roofline fraction that a row of `reported_gpus` reached, with one AdamW a step."""
    # Adding up the gradients is not counted: 3 % of a step at B=8, less above.
    *batch, optimizer = roofline_ms(work(int(row["B"]))["10_fused_adamw"], rates)
    return (row["grad_accum_steps"] * sum(batch) + optimizer) / row["ms_a_step"]
