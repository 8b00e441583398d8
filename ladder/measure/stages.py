"""Where a step's time goes: a program that runs a script and times the stages of its steps.

    python -m ladder.measure.stages OUT SCRIPT FLAGS…

writes OUT.json, and the trace of the last step as OUT.trace.json. `ladder profile` starts it.
"""

import json
import runpy
import sys
import time
from functools import partial
from pathlib import Path

import torch
from torch.profiler import profile

from ladder import run
from ladder.probe import Watcher

WARMUP_STEPS = 3
STAGES = ("forward", "backward", "optimizer")


class Stages(Watcher):
    """Times the stages of a run's steps, profiles the last step, and saves both.

    Tensor.backward is replaced by one that reads the clock: its call is all that says where stages
    begin and end, the same in every script, and scripts run as they are.
    """

    def __init__(self, out: str):
        self.out = out
        self.device = torch.device("cpu")  # until the first backward
        self.profiler = None  # of the step under way
        # Milliseconds of each step but the last.
        self.times = {stage: [] for stage in (*STAGES, "step")}
        original = torch.Tensor.backward

        def backward(loss: torch.Tensor, *args: object, **options: object):
            self.device = loss.device
            self.lap("forward")
            original(loss, *args, **options)
            self.lap("backward")

        torch.Tensor.backward = backward

    def begin(self, done: int, left: int):
        if left == 1:
            self.profiler = profile()
            self.profiler.start()
        self.stages = dict.fromkeys(STAGES, 0.0)
        self.mark = time.perf_counter()

    def lap(self, stage: str):
        """Add the time since the last lap to this stage. Several backwards add up."""
        if self.device.type != "cpu":
            torch.accelerator.synchronize(self.device)
        now = time.perf_counter()
        self.stages[stage] += (now - self.mark) * 1e3
        self.mark = now

    def end(self, dt: float | None, skipped: bool = False):
        profiler = self.profiler
        self.profiler = None
        if profiler:
            profiler.stop()
        if dt is None:
            return
        if profiler:
            self._save(profiler)
        else:
            self.stages["optimizer"] = dt * 1e3 - sum(self.stages.values())
            self.stages["step"] = dt * 1e3
            for stage, ms in self.stages.items():
                self.times[stage].append(ms)

    def _save(self, profiler: profile):
        profiler.export_chrome_trace(f"{self.out}.trace.json")
        where = "cuda" if self.device.type == "cuda" else "cpu"
        kernels = profiler.key_averages().table(
            sort_by=f"self_{where}_time_total", row_limit=10, max_name_column_width=50
        )
        found = {"times_ms": self.times, "kernels": kernels}
        Path(f"{self.out}.json").write_text(json.dumps(found), "utf-8")


def main():
    out, *sys.argv = sys.argv[1:]
    run.Run = partial(run.Run, watcher=Stages(out))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
