"""One run of a script: its log file, header, step lines, probe and RESULT."""

import json
import logging
import math
import platform
import signal
import sys
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import torch

from ladder import machine, probe
from ladder.errors import UsageError, exit_with, explain, tell_torchrun
from ladder.files import ROOT, commit, require_own
from ladder.log import mfu_line, pairs_line, result, step_line
from ladder.output import Output
from ladder.signals import Signals, signals_to


class NotFinite(UsageError):
    """The loss is NaN or infinite: training on makes no sense."""


class Run:
    """Context of one run: prints its lines and writes them to its log.

    On exit it prints RESULT, if there was a step to do. An error whose cause is known becomes one
    line on stderr and exit status 2, a loss that is not finite status 1, Ctrl-C status 130, SIGTERM
    143 and SIGHUP 129. RESULT then covers the steps done, and its `status` says so; `stopped` is a
    run that ended before its last step. If something could not be written, the status is 2.
    """

    watcher = probe.SecondStep  # `ladder profile` watches the steps in its own way

    def __init__(self, script: str, args, rank: int = 0, world_size: int = 1):
        self.args = args
        self.rank = rank
        self.world_size = world_size
        self.path = Path(script).resolve()
        self.script = self.path.name
        if self.path.is_relative_to(ROOT):
            self.script = self.path.relative_to(ROOT).as_posix()
        self.output = Output(rank)
        self.print0 = self.output.print  # for scripts: on rank 0, print a line and log it
        self.copy_log = self.output.copy_log
        self.signals = Signals(rank)
        self.watch = self.watcher(self)
        self.model = None  # until header()
        self.steps_left = 0
        self.times = []  # of steps, in seconds
        self.losses = []
        self.skipped = 0  # steps whose gradient overflowed float16
        self.effective = None  # what the second step ran
        self.validation = {}  # RESULT's keys of the held-out loss
        self.result = None
        self.throttled = machine.throttled()

    def __enter__(self):
        if hasattr(sys.stdout, "reconfigure"):  # the screen may lack letters of a corpus's name
            sys.stdout.reconfigure(errors="backslashreplace")
        # 30 lines of PyTorch 2.15 before the error that becomes our one line
        logging.getLogger("torch._inductor.scheduler").setLevel(logging.CRITICAL + 1)
        others = machine.started_with_others()
        if self.world_size == 1 and others:
            alone = f"{others}, but this would train alone"
            exit_with(f"{alone}: unset it, or start ddp_run.py with torchrun")
        try:
            require_own(self.path)
            if self.args.device.index is not None:  # else GPU 0 is used too
                torch.cuda.set_device(self.args.device)
            # In UTC: `ladder report` puts the logs of a run in order, wherever it was resumed.
            name = f"{self.path.stem}-{datetime.now(timezone.utc):%Y%m%d-%H%M%S-%f}.log"
            self.output.open_log(Path(self.args.log_dir), name)
        # Of another clone, of --log-dir, or of CUDA, which starts here.
        except (UsageError, OSError, RuntimeError) as error:
            exit_with(explain(error) or error)
        self.closing = ExitStack()  # closes the logs, then restores the signals
        self.closing.enter_context(signals_to(self.signals.arrive))
        self.closing.callback(self.output.close)
        return self

    def __exit__(self, kind, error, traceback):
        """Print why the run failed, if it did, and RESULT. Raises SystemExit unless it is done."""
        self.signals.writing = True
        self.watch.end(math.nan)  # of a step that an error ended
        status, exit_status, why = "ok", 0, None
        if isinstance(error, KeyboardInterrupt):
            status, exit_status = "interrupted", 128 + (self.signals.first or signal.SIGINT)
        elif isinstance(error, NotFinite):
            status, exit_status, why = "not finite", 1, str(error)
        elif error:
            status, why = "failed", explain(error)
            exit_status = 2 if why else None  # a bug in a script: its traceback follows
        elif self.steps_left:  # after stopped()
            status = "stopped"
            if self.rank == 0:  # if another rank failed, torchrun would end rank 0
                exit_status = 128 + self.signals.first
        with self.closing:
            if why:
                self.output.error(why)
                tell_torchrun(why)
            if self.model is not None:  # else there is no run line
                self._finish(status)
        if exit_status == 0 and self.output.lost:
            exit_status = 2
        if exit_status:
            raise SystemExit(exit_status) from None

    @property
    def stopping(self) -> int:
        """The number of the signal after which the run is to end, 0 if there was none."""
        return self.signals.first

    def stopped(self, number: int, checkpoint: Path | None):
        """Say how to go on after signal `number`, to any rank, if there are steps left.

        The script then leaves its loop.
        """
        self.signals.first = number
        if not self.steps_left:
            return
        kept = "no checkpoint is kept"
        if checkpoint:
            kept = f"{checkpoint} is kept, the same command with --resume goes on"
        name = signal.Signals(number).name
        line = f"{name}: stopped after step {self.args.steps - self.steps_left}; {kept}"
        self.print0(f"note  {line}")
        tell_torchrun(line)

    def header(self, model, batches, *, dtype=None, scaler=None, first_step=0):
        """Print the run line: what is about to run, where, and on which data.

        `dtype` is autocast's. `first_step` is where a resumed run starts. A signal ends a run with
        checkpoints after its step: see `stopping`.
        """
        total_batch = getattr(self.args, "total_batch", None)
        compiled = not getattr(self.args, "no_compile", True)
        self.model = model
        self.scaler = scaler or torch.amp.GradScaler(enabled=False)
        self.scale = self.scaler.get_scale()
        self.tokens_per_step = total_batch or batches.B * batches.T
        self.steps_left = max(0, self.args.steps - first_step)
        self.signals.finish_step = hasattr(self.args, "ckpt_every")
        if self.rank:
            return
        self.print0(pairs_line("run", self._settings(batches, total_batch)))
        if not self.steps_left:
            done = f"step {first_step} is done, --steps is {self.args.steps}"
            self.print0(f"note  nothing left to train: {done}")
            return
        if self.args.device.type == "cpu" and machine.unseen_gpu():
            self.print0(f"note  {machine.unseen_gpu()}")
        if dtype == torch.float32:
            why = "PyTorch knows of no bfloat16 units in this CPU, or --dtype says so"
            self.print0(f"note  autocast stays off: {why}")
        if compiled or hasattr(model, "_orig_mod"):
            self.print0("note  compiling: the first step may take minutes")
        self._begin_step()

    def _settings(self, batches, total_batch: int | None) -> dict:
        """The keys of the run line."""
        args = self.args
        corpus = batches.corpus
        tokens_per_epoch = batches.rows_per_epoch * batches.T
        epoch_batches = f"{tokens_per_epoch / self.tokens_per_step:.1f}".removesuffix(".0")
        settings = {
            "script": self.script,
            "commit": commit(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "device": machine.device_name(args.device),
            "cores": machine.usable_cores(),
            "model": args.model,
            "params": sum(p.numel() for p in self.model.parameters()),
            "B": args.batch_size,
            "T": args.seq_len,
            "total_batch": total_batch,
            "ranks": self.world_size if total_batch else None,
            "steps": args.steps,
            "seed": args.seed,
            "shuffle": args.shuffle,
            "data": corpus.name,
            "data_sha256": corpus.sha256[:12],
            "tokens": len(corpus),
            "epoch_batches": epoch_batches,
            "dropped": batches.dropped,
        }
        return {key: value for key, value in settings.items() if value is not None}

    def log(self, step: int, loss: float, dt: float, tok_per_s: float, **more: float):
        """Print one step line. `dt` is in seconds; `more` are values that a rung adds.

        After the second step, a warm-up step that ran under PyTorch's profiler, it prints the
        `effective` line. If that step was skipped because float16 overflowed, it is a later one.
        """
        with self.signals.held():  # a step is recorded everywhere or nowhere
            self.times.append(dt)
            self.losses.append(loss)
            self.steps_left -= 1
            line = step_line(step, self.args.steps, loss=loss, dt=dt, tok_per_s=tok_per_s, **more)
            self.output.log(line)
            if len(self.times) > 1:  # the first step may compile
                line += f" | left {timedelta(seconds=round(dt * self.steps_left))}"
            self.output.show(line)
            recording = self.watch.end(dt)
            scale = self.scaler.get_scale()
            if scale < self.scale:
                self.skipped += 1
                self.print0(f"note  step {step + 1} skipped: a gradient overflowed float16")
            elif recording:
                self.effective = {"matmul": probe.matmul_units(self.args.device)}
                self.effective |= probe.effective(probe.operators(recording))
                if self.scaler.is_enabled():
                    self.effective["loss_scale"] = f"{scale:g}"
                self.print0(pairs_line("effective", self.effective))
            self.scale = scale
            if not math.isfinite(loss):
                raise NotFinite(f"the loss of step {step + 1} is {loss}: stopped")
        self._begin_step()

    def _begin_step(self):
        if self.steps_left and self.rank == 0:
            self.watch.begin()

    @contextmanager
    def paused(self):
        """Do inside what is not part of a step, so that the profile of a step does not show it."""
        self.watch.end(math.nan)
        yield
        self._begin_step()

    def _finish(self, status: str):
        """Print the mfu line and RESULT of the steps done, and the same in a sentence."""
        planned = len(self.times) + self.steps_left
        if not planned:  # it was resumed after its last step, or was to validate only
            return
        flops = flops_per_token(self.model, self.args.seq_len)
        peak = machine.peak_flops(self.args.device)
        numbers = result(
            self.times,
            self.losses,
            steps=planned,
            tokens_per_step=self.tokens_per_step,
            flops_per_token=flops,
            peak_flops=peak,
            world_size=self.world_size,
            peak_bytes=machine.peak_bytes(self.args.device),
        )
        self.result = {"script": self.script, "status": status, **numbers, **self.validation}
        if self.rank:
            return
        if self.scaler.is_enabled():
            self.result |= {"loss_scale": self.scale, "skipped_steps": self.skipped}
        if planned < 3 or not numbers["measured_steps"]:
            self.print0("note  not a measurement: a run's first steps are warm-up")
        waits = machine.throttled() - self.throttled
        if waits > 0:
            self.print0(f"note  throttled {waits} times: this run's share of the CPU was used up")
        self.print0(mfu_line(flops, peak, numbers["mfu"]))
        self.print0("RESULT " + json.dumps(self.result, allow_nan=False))
        if numbers["tok_per_s"]:
            speed = f"{numbers['tok_per_s']:,.0f} tok/s, {numbers['median_ms']:,.1f} ms a step"
            loss = f"loss {self.losses[0]:.2f} -> {self.losses[-1]:.2f}"
            self.output.show(f"{self.output.logs[0].name}: {speed}, {loss}")


def flops_per_token(model, T: int) -> int:
    """FLOPs of forward and backward per token: 6N + 12·L·C·T (PaLM paper, appendix B).

    N counts the parameters of the blocks, the last LayerNorm and the output head: embeddings are
    looked up, not multiplied.
    """
    config = model.config
    multiplied = (model.transformer.h, model.transformer.ln_f, model.lm_head)
    N = sum(p.numel() for part in multiplied for p in part.parameters())
    return 6 * N + 12 * config.n_layer * config.n_embd * T
