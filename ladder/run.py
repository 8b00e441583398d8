"""One run of a script: its log file, header, step lines, probe and RESULT."""

import json
import logging
import math
import platform
import signal
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import torch
from torch.amp import GradScaler
from torch.nn import Module

from ladder import machine, probe
from ladder.batches import Batches
from ladder.checkout import ROOT, commit, require_own
from ladder.errors import UsageError, exit_with, explain, tell_torchrun
from ladder.log import log_name, mfu_line, pairs_line, step_line
from ladder.output import Output
from ladder.result import Result, flops_per_token
from ladder.signals import Signals, signals_to


class NotFinite(UsageError):
    """The loss is NaN or infinite: training on makes no sense."""


class Stopped(Exception):
    """A signal has ended the run after its step."""


class Run:
    """Context of one run: prints its lines and writes them to its log.

    On exit it prints RESULT, if there was a step to do. An error whose cause is known becomes one
    line on stderr and exit status 2, a loss that is not finite status 1, Ctrl-C status 130, SIGTERM
    143 and SIGHUP 129. RESULT then covers the steps done, and its `status` says so: `stopped` after
    a step, `interrupted` in the middle of one. If something could not be written, the status is 2.
    """

    def __init__(
        self,
        script: str,
        args: Namespace,
        rank: int = 0,
        world_size: int = 1,
        watcher: probe.Watcher | None = None,
    ):
        self.args = args
        self.rank = rank
        self.world_size = world_size
        self.path = Path(script).resolve()
        self.script = self.path.name
        if self.path.is_relative_to(ROOT):
            self.script = self.path.relative_to(ROOT).as_posix()
        self.tokens_per_step = world_size * args.batch_size * args.seq_len
        # train.py: a step may have several batches, and stop() is called when it is saved.
        self.is_training = hasattr(args, "total_batch")
        if self.is_training:
            self.tokens_per_step = args.total_batch
        self.output = Output(rank)
        self.print0 = self.output.print  # for scripts: on rank 0, print a line and log it
        self.copy_log = self.output.copy_log
        self.signals = Signals(rank)
        self.closing = ExitStack()  # closes the logs, then restores the signals
        self.watcher = watcher or probe.SecondStep()
        self.model = None  # until header()
        self.scaler = GradScaler(enabled=False)
        self.scale = 1.0  # the scaler's
        self.steps_left = 0
        self.times = []  # of steps, in seconds
        self.losses = []
        self.skipped = 0  # steps whose gradient overflowed float16
        self.validation = {}  # RESULT's keys of the held-out loss
        self.result = None
        self.throttled = machine.throttled()

    def __enter__(self) -> "Run":
        if hasattr(sys.stdout, "reconfigure"):  # the screen may lack letters of a corpus's name
            sys.stdout.reconfigure(errors="backslashreplace")
        # 30 lines of PyTorch 2.15 before the error that becomes our one line
        logging.getLogger("torch._inductor.scheduler").setLevel(logging.CRITICAL + 1)
        others = machine.started_with_others()
        if self.world_size == 1 and others:
            exit_with(
                f"{others}, but this would train alone: unset it, or start ddp_run.py or train.py "
                "with torchrun"
            )
        try:
            require_own(self.path)
            if self.args.device.index is not None:  # else GPU 0 is used too
                torch.cuda.set_device(self.args.device)
            self.output.open_log(Path(self.args.log_dir), log_name(self.path))
        # Of another clone, of --log-dir, or of CUDA, which starts here.
        except (UsageError, OSError, RuntimeError) as error:
            exit_with(explain(error) or error)
        self.closing.enter_context(signals_to(self.signals.arrive))
        self.closing.callback(self.output.close)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object):
        """Print why the run failed, if it did, and RESULT. Raises SystemExit unless it is done."""
        self.signals.writing = self.signals.at_once = True  # no signal ends this
        self.watcher.end(None)  # of a step that an error ended
        status, exit_status, why = "ok", 0, None
        if isinstance(error, Stopped):
            status = "stopped"
            if self.rank == 0:  # if another rank failed, torchrun would end rank 0
                exit_status = 128 + self.signals.first
        elif isinstance(error, KeyboardInterrupt):
            status, exit_status = "interrupted", 128 + (self.signals.first or signal.SIGINT)
        elif isinstance(error, NotFinite):
            status, exit_status, why = "not finite", 1, str(error)
        elif error:
            status, why = "failed", explain(error)
            exit_status = 2 if why else None  # a bug in a script: its traceback follows
        with self.closing:
            if why:
                self.output.error(why)
                tell_torchrun(why)
            if self.times or self.steps_left:  # else it trained nothing, or has no run line
                self.result = finish(self, status)
        if exit_status == 0 and self.output.lost:
            exit_status = 2
        if exit_status or status == "stopped":
            raise SystemExit(exit_status) from None

    @property
    def stopping(self) -> int:
        """The number of the signal after which the run is to end, 0 if there was none."""
        return self.signals.first

    def stop(self, number: int, checkpoint: Path | None = None):
        """End the run after signal `number`, to any rank, if there was one and steps are left.

        Says how to go on, and raises Stopped.
        """
        self.signals.first = number or self.signals.first
        if not number or not self.steps_left:
            return
        kept = "no checkpoint is kept"
        if checkpoint:
            kept = f"{checkpoint} is kept, the same command with --resume goes on"
        name = signal.Signals(number).name
        line = f"{name}: stopped after step {self.args.steps - self.steps_left}; {kept}"
        self.print0(f"note  {line}")
        tell_torchrun(line)
        raise Stopped

    def validated(self, found: dict[str, float], saved: bool):
        """Take what `Checkpoints.keep_best` returns, for RESULT and the exit status."""
        self.validation |= found
        self.output.lost |= not saved

    def header(
        self,
        model: Module,
        batches: Batches,
        *,
        dtype: torch.dtype | None = None,
        scaler: GradScaler | None = None,
        first_step: int = 0,
    ):
        """Print the run line: what is about to run, where, and on which data.

        `dtype` is autocast's. `first_step` is where a resumed run starts.
        """
        compiled = not getattr(self.args, "no_compile", True)
        self.model = getattr(model, "module", model)  # DDP's
        self.scaler = scaler or self.scaler
        self.scale = self.scaler.get_scale()
        self.steps_left = max(0, self.args.steps - first_step)
        if self.rank:
            return
        self.print0(pairs_line("run", settings(self, batches, dtype)))
        if not self.steps_left:
            self.print0(
                f"note  nothing left to train: step {first_step} is done, --steps is "
                f"{self.args.steps}"
            )
            return
        if self.args.device.type == "cpu" and machine.unseen_gpu():
            self.print0(f"note  {machine.unseen_gpu()}")
        if dtype == torch.float32:
            self.print0(
                "note  autocast stays off: PyTorch knows of no bfloat16 units in this CPU, or "
                "--dtype says so"
            )
        if compiled or hasattr(model, "_orig_mod"):
            self.print0("note  compiling: the first step may take minutes")
        elif self.args.device.type == "cpu" and self.args.model != "tiny":
            self.print0("note  the first step may take half a minute on a CPU")
        self._begin_step()

    def log(self, step: int, loss: float, dt: float, tok_per_s: float, **more: float):
        """Print one step line. `dt` is in seconds; `more` are values that a rung adds.

        After the second step, a warm-up step that ran under PyTorch's profiler, it prints the
        `effective` line. If that step was skipped because float16 overflowed, it is a later one.

        After a signal a rung ends here; ranks agree on it first, and call `stop`.
        """
        self.signals.at_once = False
        with self.signals.held():  # a step is recorded everywhere or nowhere
            self.times.append(dt)
            self.losses.append(loss)
            self.steps_left -= 1
            line = step_line(step, self.args.steps, loss=loss, dt=dt, tok_per_s=tok_per_s, **more)
            self.output.log(line)
            if len(self.times) > 1:  # the first step may compile
                line += f" | left {timedelta(seconds=round(dt * self.steps_left))}"
            self.output.say(line)
            scale = self.scaler.get_scale()
            skipped = scale < self.scale
            recording = self.watcher.end(dt, skipped)
            if skipped:
                self.skipped += 1
                self.print0(f"note  step {step + 1} skipped: a gradient overflowed float16")
            if recording:
                effective = {"matmul": probe.matmul_units(self.args.device)}
                effective |= probe.effective(probe.operators(recording))
                if self.scaler.is_enabled():
                    effective["loss_scale"] = f"{scale:g}"
                self.print0(pairs_line("effective", effective))
            self.scale = scale
            if not math.isfinite(loss):
                raise NotFinite(f"the loss of step {step + 1} is {loss}: stopped")
        if self.world_size == 1 and not self.is_training:
            self.stop(self.stopping)
        self._begin_step()

    def _begin_step(self):
        if self.steps_left and self.rank == 0:
            self.watcher.begin(len(self.times), self.steps_left)
            if not self.is_training:
                self.last_batch()

    def last_batch(self):
        """The last batch of a step begins; of most scripts a step has one."""
        self.watcher.last_batch()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do inside what is not part of a step, so that the profile of a step does not show it."""
        self.watcher.end(None)
        yield
        self._begin_step()


def settings(run: Run, batches: Batches, dtype: torch.dtype | None) -> dict[str, object]:
    """The keys of the run line; `dtype` is autocast's."""
    args = run.args
    corpus = batches.corpus
    shared = run.is_training or run.world_size > 1  # a step is not one batch of B rows
    epoch_batches = f"{batches.rows_per_epoch * batches.T / run.tokens_per_step:.1f}"
    found = {
        "script": run.script,
        "commit": commit(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": machine.device_name(args.device),
        "cores": machine.usable_cores(),
        "model": args.model,
        "params": sum(p.numel() for p in run.model.parameters()),
        "B": args.batch_size,
        "T": args.seq_len,
        "dtype": str(dtype).removeprefix("torch.") if dtype else None,
        "total_batch": run.tokens_per_step if shared else None,
        "ranks": run.world_size if shared else None,
        "steps": args.steps,
        "seed": args.seed,
        "shuffle": args.shuffle,
        "data": corpus.name,
        "data_sha256": corpus.sha256[:12],
        "tokens": len(corpus),
        "epoch_batches": epoch_batches.removesuffix(".0"),
        "dropped": batches.dropped,
    }
    return {key: value for key, value in found.items() if value is not None}


def finish(run: Run, status: str) -> dict[str, object]:
    """RESULT of the steps done. On rank 0 it is printed, after the mfu line, and in a sentence."""
    planned = len(run.times) + run.steps_left
    flops = flops_per_token(run.model, run.args.seq_len)
    peak = machine.peak_flops(run.args.device)
    numbers = Result(
        times=run.times,
        losses=run.losses,
        steps_left=run.steps_left,
        tokens_per_step=run.tokens_per_step,
        flops_per_token=flops,
        peak_flops=peak,
        devices=run.world_size,
    ).numbers()
    numbers["peak_bytes"] = machine.peak_bytes(run.args.device)
    waits = machine.throttled() - run.throttled
    numbers["throttled"] = waits
    found = {"script": run.script, "status": status, **numbers, **run.validation}
    if run.scaler.is_enabled():
        found |= {"loss_scale": run.scale, "skipped_steps": run.skipped}
    if planned < 3 or not numbers["measured_steps"]:
        run.print0("note  not a measurement: a run's first steps are warm-up")
    if waits > 0:
        run.print0(f"note  throttled {waits} times: this run's share of the CPU was used up")
    run.print0(mfu_line(flops, peak, numbers["mfu"]))
    run.print0("RESULT " + json.dumps(found, allow_nan=False))
    if run.rank == 0 and numbers["tok_per_s"]:
        run.output.say(
            f"{run.output.logs[0].name}: {numbers['tok_per_s']:,.0f} tok/s, "
            f"{numbers['median_ms']:,.1f} ms a step, "
            f"loss {run.losses[0]:.2f} -> {run.losses[-1]:.2f}"
        )
    return found
