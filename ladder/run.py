"""One run of a script: its log file, header, step lines, probe and RESULT."""

import json
import logging
import math
import os
import platform
import signal
import statistics
import sys
import threading
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import numpy as np
import torch

from ladder import machine, probe
from ladder.errors import explain
from ladder.files import ROOT, commit
from ladder.log import pairs_line, step_line


@contextmanager
def uninterrupted():
    """Ctrl-C waits until what is inside is done: a step is recorded everywhere or nowhere.

    Only the main thread gets Ctrl-C, and only it may hold it back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held = []
    previous = signal.signal(signal.SIGINT, lambda *_: held.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
    if held:
        raise KeyboardInterrupt


class NotFinite(Exception):
    """A loss that is NaN or infinite: nothing after it means anything."""


class Run:
    """Context of one run: everything said goes to the screen and, flushed, to a file.

    Leaving it prints the RESULT. An error whose cause is known becomes one line on stderr and
    exit status 2, a loss that is not finite status 1, Ctrl-C status 130. The RESULT then covers the
    steps done, and its `status` says so; `stopped` is a run that ended before its last step.

    Of several processes that train together only rank 0 speaks and writes a log; the others say
    nothing but their own errors.
    """

    def __init__(self, script: str, args, rank: int = 0, ranks: int = 1):
        self.args = args
        self.rank, self.ranks = rank, ranks
        path = Path(script).resolve()
        self.script = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
        self.step_times: list[float] = []  # seconds
        self.losses: list[float] = []
        self.ending = False
        self.model, self.first_step = None, 0
        self.recording = None  # the profile of the second step, while that runs
        self.operators = self.effective = self.peak_bytes = None
        self.result = None

    def __enter__(self):
        # PyTorch's CUDA build tells, while it compiles, that a machine has no GPU: it need not.
        logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
        self.file = self._open_log()
        try:
            if self.args.device.type == "cuda":
                torch.cuda.init()  # before it, there are no statistics to reset
                if self.args.device.index is not None:  # or GPU 0 holds something too
                    torch.cuda.set_device(self.args.device)
                torch.cuda.reset_peak_memory_stats(self.args.device)
        except Exception as error:  # not all that CUDA raises is a RuntimeError
            self.__exit__(type(error), error, None)
            raise
        return self

    def _open_log(self):
        if self.rank:
            return open(os.devnull, "w")
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        path = Path(self.args.log_dir) / f"{Path(self.script).stem}-{stamp}-{os.getpid()}.log"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return path.open("w", encoding="utf-8")
        except OSError as error:
            print(f"error cannot write the log {path}: {error.strerror}", file=sys.stderr)
            raise SystemExit(2) from None

    def __exit__(self, kind, error, traceback):
        self.ending = True
        self._stop_recording()  # where the second step did not come to its end
        with self.file:
            if error is None:
                self._finish("stopped" if self._steps_left() else "ok")
            elif isinstance(error, KeyboardInterrupt):
                self._finish("interrupted")
                raise SystemExit(130) from None
            elif isinstance(error, NotFinite):
                self.say(f"error {error}", sys.stderr)
                self._finish("not finite")
                raise SystemExit(1) from None
            elif isinstance(error, SystemExit):  # another rank has said why
                pass
            elif line := explain(error):
                self.say(f"error {line}", sys.stderr)
                self._finish("failed")
                raise SystemExit(2) from None
            else:  # a mistake in a script: its traceback follows
                self.say(f"error {type(error).__name__}: {error}".splitlines()[0], sys.stderr)
                self._finish("failed")

    def say(self, line: str, stream=None) -> None:
        """Write one line to the log and print it, both at once and flushed.

        Where nobody reads any more (`| head`; `| tee`, which gets the same Ctrl-C) it counts as
        Ctrl-C: the RESULT is in the log.
        """
        if self.rank:
            if stream is sys.stderr:
                print(f"rank {self.rank}: {line}", file=stream, flush=True)
            return
        stream = stream or sys.stdout
        with uninterrupted():
            self.file.write(line + "\n")
            self.file.flush()
            try:
                print(line, file=stream, flush=True)
            except BrokenPipeError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
                if not self.ending:
                    raise KeyboardInterrupt from None

    def header(self, model, batches, tokens_per_step=None, first_step: int = 0, **more) -> None:
        """The run line: what is about to run, where, on what.

        `tokens_per_step` is B·T by default. A run that was resumed has a `first_step`. `more` goes
        into the line.
        """
        self.model, self.first_step = model, first_step
        self.tokens_per_step = tokens_per_step or batches.B * batches.T
        if self.rank:
            return
        epoch = batches.rows_per_epoch * batches.T / self.tokens_per_step
        pairs = {
            "script": self.script,
            "commit": commit(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "device": machine.device_name(self.args.device),
            "model": self.args.model,
            "params": sum(p.numel() for p in model.parameters()),
            "B": self.args.batch_size,
            "T": self.args.seq_len,
            **more,
            "steps": self.args.steps,
            "seed": self.args.seed,
            "data": batches.corpus.name,
            "data_sha256": batches.corpus.sha256[:12],
            "tokens": len(batches.corpus),
            "epoch_batches": f"{epoch:.1f}".removesuffix(".0"),
            "dropped": batches.dropped,
        }
        self.facts = {key: str(value) for key, value in pairs.items()}
        self.say(pairs_line("run", self.facts))

    def log(self, step: int, loss: float, dt: float, tok_per_s: float, **more: float) -> None:
        """One step line. `dt` in seconds; `more` are a rung's own values.

        It also profiles the second step, a warm-up step, and prints the `effective` line from it.
        """
        with uninterrupted():
            self.step_times.append(dt)
            self.losses.append(loss)
            values = dict(loss=loss, dt=dt, tok_per_s=tok_per_s, **more)
            self.say(step_line(step, self.args.steps, **values))
            self.peak_bytes = machine.peak_bytes(self.args.device)
            if recording := self._stop_recording():
                units = probe.matmul_units(self.args.device)
                self.operators = probe.operators(recording)
                self.effective = {"matmul": units, **probe.effective(self.operators)}
                self.say(pairs_line("effective", self.effective))
        if not math.isfinite(loss):
            raise NotFinite(f"the loss of step {step + 1} is {loss}: stopped")
        if len(self.step_times) == 1 and self._steps_left() and not self.rank:
            self.recording = probe.start()

    @contextmanager
    def between_steps(self):
        """What runs inside is no part of a step: the profile of the next one begins after it."""
        recording = self._stop_recording()
        yield
        if recording:
            self.recording = probe.start()

    def _stop_recording(self):
        recording, self.recording = self.recording, None
        if recording:
            probe.stop(recording)
        return recording

    def _steps_left(self) -> int:
        return max(0, self.args.steps - self.first_step - len(self.step_times))

    def _finish(self, status: str) -> None:
        """Print the mfu line and RESULT of the steps done."""
        if self.model is None:  # it failed before there was a run
            return
        planned = len(self.step_times) + self._steps_left()
        if self.step_times and not self.effective:
            self.say("effective unknown")
        if 0 < planned < 3:
            self.say("note  no measurement: the first two steps of a run are warm-up")
        warmup = warmup_steps(planned)
        times = self.step_times[warmup:]
        median = statistics.median(times) if times else None
        tok_per_s = self.tokens_per_step / median if median else None
        flops = flops_per_token(self.model, self.args.seq_len)
        peak = machine.peak_flops(self.args.device)
        mfu = flops * tok_per_s / (peak * self.ranks) if tok_per_s and peak else None
        self.say(
            pairs_line(
                "mfu",
                {
                    "mfu": f"{mfu:.4f}" if mfu else "unknown",
                    "formula": "6N+12LCT",
                    "flops_per_token": flops,
                    "peak_flops": f"{peak:.4g}" if peak else "unknown",
                },
            )
        )
        self.result = {
            "script": self.script,
            "status": status,
            "median_ms": _ms(median),
            "p10_ms": _ms(np.percentile(times, 10) if times else None),
            "p90_ms": _ms(np.percentile(times, 90) if times else None),
            "measured_steps": len(times),
            "warmup_steps": min(warmup, len(self.step_times)),
            "tok_per_s": round(tok_per_s, 1) if tok_per_s else None,
            "mfu": round(mfu, 4) if mfu else None,
            "peak_bytes": self.peak_bytes,
            "first_step_ms": _ms(self.step_times[0] if self.step_times else None),
            "first_loss": _finite(self.losses[0] if self.losses else None),
            "final_loss": _finite(self.losses[-1] if self.losses else None),
        }
        self.say("RESULT " + json.dumps(self.result, allow_nan=False))


def warmup_steps(steps: int) -> int:
    """How many of a run's steps RESULT leaves out: a third, at least 2 and at most 10.

    The second step is the one that is profiled. Of one or two steps the last is shown, with a note
    that it is no measurement.
    """
    return min(10, max(2, steps // 3), max(steps - 1, 0))


def flops_per_token(model, T: int) -> int:
    """FLOPs of forward and backward per token: 6N + 12·L·C·T (PaLM paper, appendix B).

    N counts the parameters without the position table and with the output head once: an untied
    token embedding is looked up, not multiplied.
    """
    config = model.config
    N = sum(p.numel() for p in model.parameters()) - config.block_size * config.n_embd
    if model.lm_head.weight is not model.transformer.wte.weight:
        N -= model.transformer.wte.weight.numel()
    return 6 * N + 12 * config.n_layer * config.n_embd * T


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(float(seconds) * 1e3, 3)


def _finite(loss: float | None) -> float | None:
    return loss if loss is not None and math.isfinite(loss) else None
