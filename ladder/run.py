"""One run of a script: its log file, header, step lines, probe and RESULT."""

import json
import math
import os
import platform
import shlex
import shutil
import signal
import statistics
import sys
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path

import torch

from ladder import machine, probe
from ladder.errors import UsageError, exit_with, explain, tell_torchrun
from ladder.files import ROOT, commit, require_own, silence
from ladder.log import mfu_line, pairs_line, result, screen_line, step_line
from ladder.signals import signals_to
from ladder.text import printable

# How many processes torchrun, Slurm's srun, Open MPI and MPICH say that they started.
STARTED = ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


class NotFinite(Exception):
    """The loss is NaN or infinite: training on makes no sense."""


class Run:
    """Context of one run: prints lines and writes them, flushed, to the log.

    On exit it prints RESULT, if there was a step to do. An error whose cause is known becomes one
    line on stderr and exit status 2, a loss that is not finite status 1, Ctrl-C status 130, SIGTERM
    143 and SIGHUP 129. RESULT then covers the steps done, and its `status` says so; `stopped` is a
    run that ended before its last step. If the screen or the log can no longer be written, the run
    continues with the other one and exits with status 2. Only rank 0 writes a log; other ranks
    print only errors.

    A script that sets `waits_for_step` reads `stop_signal` after each step, and calls stop(): the
    first signal only sets it. A second Ctrl-C interrupts the script.
    """

    def __init__(self, script: str, args, rank: int = 0, world_size: int = 1):
        self.args = args
        self.rank = rank
        self.world_size = world_size
        self.path = path = Path(script).resolve()
        self.script = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
        # Scripts set these four.
        self.dtype = None  # of autocast; float32 leaves it off
        self.scaler = torch.amp.GradScaler(enabled=False)
        self.compiled = False  # where header() gets the model that torch.compile has not wrapped
        self.waits_for_step = False
        # What happened so far.
        self.stop_signal = 0  # the number of the first signal
        self.write_failed = False  # whether something could not be written
        self.holds_signals = False  # while a step or RESULT is written
        self.model = None
        self.steps_left = 0  # steps not done yet
        self.step_times = []  # seconds
        self.losses = []
        self.skipped = 0  # steps whose gradient overflowed float16
        self.recording = None  # the profile of the second step, while that runs
        self.effective = None
        self.peak_bytes = None
        self.validation = {}  # RESULT's keys of the held-out loss
        self.folder = None  # of checkpoints, with a copy of the log
        self.result = None

    def __enter__(self):
        if hasattr(sys.stdout, "reconfigure"):  # the screen may lack letters of a corpus's name
            sys.stdout.reconfigure(errors="backslashreplace")
        machine.quiet_pytorch()
        for name in STARTED:
            copies = os.environ.get(name) or "1"
            if self.world_size == 1 and copies != "1":
                alone = f"{name} is {copies}, but {self.script} would train alone"
                exit_with(f"{alone}: unset it, or start ddp_run.py with torchrun")
        try:
            require_own(self.path)
            if self.args.device.index is not None:  # else GPU 0 is used too
                torch.cuda.set_device(self.args.device)
            self.file = self._open_log()
            self.logs = [self.file]
        # Of another clone, of --log-dir, or of CUDA, which starts here.
        except (UsageError, OSError, RuntimeError) as error:
            exit_with(explain(error) or error)
        self.closing = ExitStack()  # closes the log, then restores the signals
        self.closing.enter_context(signals_to(self._on_signal))
        self.closing.enter_context(self.file)
        return self

    def _open_log(self):
        if self.rank:
            return open(os.devnull, "w")
        folder = Path(self.args.log_dir)
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{Path(self.script).stem}-{datetime.now():%Y%m%d-%H%M%S-%f}.log"
        return (folder / name).open("x", encoding="utf-8")

    def copy_log(self, folder: Path | None):
        """Write the log to `folder` too, where `ladder report` finds it; None: do not.

        Raises OSError.
        """
        self.folder = folder
        if folder and self.rank == 0:
            path = folder / Path(self.file.name).name
            if not path.exists():  # else --log-dir is this folder
                shutil.copyfile(self.file.name, path)
                copy = path.open("a", encoding="utf-8")
                self.logs.append(self.closing.enter_context(copy))

    def __exit__(self, kind, error, traceback):
        self.holds_signals = True
        self._stop_recording()  # if the second step did not finish
        exit_status, result_status, line = self._ending(error)
        with self.closing:
            if line:
                self.print0(f"error {line}", sys.stderr)
                tell_torchrun(line)
            if result_status and self.model is not None:  # else it failed before the run line
                self._finish(result_status)
        if exit_status == 0 and self.write_failed:
            exit_status = 2
        if exit_status:
            raise SystemExit(exit_status) from None

    def _ending(self, error) -> tuple:
        """The exit status, RESULT's status and the error line of what ended the run."""
        if error is None and not self.steps_left:
            return 0, "ok", None
        if error is None:  # after stop(); if another rank failed, torchrun would end rank 0
            return 0 if self.rank else 128 + self.stop_signal, "stopped", None
        if isinstance(error, KeyboardInterrupt):
            return 128 + (self.stop_signal or signal.SIGINT), "interrupted", None
        if isinstance(error, NotFinite):
            return 1, "not finite", str(error)
        if isinstance(error, SystemExit):  # why was printed where it was raised
            return error.code, None, None
        known = explain(error)
        if known:
            return 2, "failed", known
        return None, "failed", None  # a bug in a script: its traceback follows

    def stop(self, number: float, checkpoint: Path | None):
        """After a step in which any rank got signal `number`: say how to go on, if steps are left.

        The script then leaves its loop.
        """
        self.stop_signal = int(number)
        if not self.steps_left:
            return
        kept = "no checkpoint is kept"
        if checkpoint:
            kept = f"{checkpoint} is kept, the same command with --resume goes on"
        done = f"stopped after step {self.args.steps - self.steps_left}"
        line = f"{signal.Signals(self.stop_signal).name}: {done}; {kept}"
        self.print0(f"note  {line}")
        if self.rank == 0:
            tell_torchrun(line)

    def _on_signal(self, number, _frame=None):
        """End the run: at once, or after the step that is under way or being written."""
        second_ctrl_c = self.stop_signal and number == signal.SIGINT
        self.stop_signal = self.stop_signal or number
        if self.waits_for_step and not second_ctrl_c:
            if self.rank == 0:
                with suppress(OSError, RuntimeError):  # closed, or in the middle of a print
                    print("note  finishing this step; Ctrl-C stops at once", file=sys.stderr)
        elif not self.holds_signals:  # else log() is writing a step, and raises this afterwards
            raise KeyboardInterrupt

    def print0(self, line: str, stream=None):
        """Write one line to the log and print it, flushing both.

        If stdout is a closed pipe (`| head`, or `| tee` after Ctrl-C), the run ends as after
        Ctrl-C, or in ddp_run.py as after SIGTERM, and the log has RESULT. On a full disk only the
        lines that go there are lost.
        """
        self._to_log(line)
        self._write(stream or sys.stdout, line)

    def _to_log(self, line: str):
        for file in self.logs:
            self._write(file, line)

    def _write(self, out, line: str):
        if self.rank:
            if out is not sys.stderr:
                return
            line = f"rank {self.rank}: {line}"
        try:
            print(printable(line), file=out, flush=True)
        except BrokenPipeError:
            silence(out)
            # The scheduler that sends SIGTERM to ddp_run.py may end `tee` first.
            self._on_signal(signal.SIGTERM if self.waits_for_step else signal.SIGINT)
        except OSError as error:
            silence(out)
            self.write_failed = True
            why = f"cannot write {out.name}: {error.strerror}"
            self.print0(f"error {why}: the run goes on without it", sys.stderr)

    def header(self, model, batches, tokens_per_step=None, first_step: int = 0, **more):
        """Print the run line: what is about to run, where, and on which data.

        `tokens_per_step` is B·T by default. `first_step` is where a resumed run starts. `more` is
        added to the line, and of these `total_batch`, the tokens of a step, if they are given.
        """
        if tokens_per_step:
            more = {"total_batch": tokens_per_step} | more
        args = self.args
        corpus = batches.corpus
        self.model = model
        self.steps_left = max(0, args.steps - first_step)
        self.scale = self.scaler.get_scale()
        self.tokens_per_step = tokens_per_step or batches.B * batches.T
        if self.rank:
            return
        tokens_per_epoch = batches.rows_per_epoch * batches.T
        epoch_batches = f"{tokens_per_epoch / self.tokens_per_step:.1f}".removesuffix(".0")
        shuffle = {} if args.shuffle is None else {"shuffle": args.shuffle}
        self.settings = {
            "script": self.script,
            "commit": commit(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "device": machine.device_name(args.device),
            "model": args.model,
            "params": sum(p.numel() for p in model.parameters()),
            "B": args.batch_size,
            "T": args.seq_len,
            **more,
            "steps": args.steps,
            "seed": args.seed,
            **shuffle,
            "data": corpus.name,
            "data_sha256": corpus.sha256[:12],
            "tokens": len(corpus),
            "epoch_batches": epoch_batches,
            "dropped": batches.dropped,
        }
        self.print0(pairs_line("run", self.settings))
        if tokens_per_step:
            self._say_step(batches)
        if not self.steps_left:
            done = f"step {first_step} is done, --steps is {self.args.steps}"
            self.print0(f"note  nothing left to train: {done}")
            return
        unseen = machine.unseen_gpu()
        if unseen and args.device.type == "cpu":
            self.print0(f"note  {unseen}")
        fp32 = torch.float32
        if self.dtype == fp32 and machine.half_precision(args.device) == fp32:
            self.print0(
                "note  autocast stays off: PyTorch knows of no bfloat16 units in this CPU, and "
                "without them FP32 is faster"
            )
        if self.compiled or hasattr(model, "_orig_mod"):
            self.print0(
                "note  compiling: the first step may take minutes (seconds with a warm cache)"
            )
        if self.steps_left > 1:
            step = f"step {first_step + 2}, which is warm-up"
            self.print0(f"note  {step}, runs under PyTorch's profiler: see `effective`")

    def _say_step(self, batches):
        """Print what a step of several batches is made of."""
        batch = self.world_size * batches.B * batches.T
        number = self.tokens_per_step // batch
        batches_a_rank = "1 micro-step" if number == 1 else f"{number} micro-steps"
        sizes = f"world size {self.world_size} x B={batches.B} x T={batches.T}"
        self.print0(f"note  a step is {self.tokens_per_step} tokens: {batches_a_rank} x {sizes}")
        # 0.95 with 0.5M tokens a step, as in GPT-3, forgets half of the squares in 7.1 million.
        beta2 = self.args.beta2
        half = self.tokens_per_step * half_life(beta2)
        if beta2 < 0.999 and half < 1e6:
            slower = self.tokens_per_step * half_life(0.999)
            forgets = f"beta2 {beta2:g} forgets half in {round(half, -3):,.0f} tokens here"
            more = f"--beta2 0.999 in {round(slower, -3):,.0f} (docs/train.md)"
            self.print0(f"note  {forgets}; {more}")

    def log(self, step: int, loss: float, dt: float, tok_per_s: float, **more: float):
        """Print one step line. `dt` is in seconds; `more` are values that a rung adds.

        After the first step it starts a profile, and after the second one, a warm-up step, it
        prints the `effective` line. If that step was skipped because float16 overflowed, it
        profiles the next one.
        """
        self.holds_signals = True  # a step is recorded everywhere or nowhere
        self.step_times.append(dt)
        self.losses.append(loss)
        self.steps_left -= 1
        numbers = dict(loss=loss, dt=dt, tok_per_s=tok_per_s, **more)
        line = step_line(step, self.args.steps, **numbers)
        self._to_log(line)
        left = self._time_left()
        if on_screen():
            columns = shutil.get_terminal_size().columns
            line = screen_line(columns, step, self.args.steps, left=left, **numbers)
        elif left:
            line += f" | left {left}"
        self._write(sys.stdout, line)
        scale_before = self.scale
        self.scale = self.scaler.get_scale()
        overflowed = self.scale < scale_before
        if overflowed:
            self.skipped += 1
            self.print0(f"note  step {step + 1} skipped: a gradient overflowed float16")
        self.peak_bytes = machine.peak_bytes(self.args.device)
        recording = self._stop_recording()
        if recording and not overflowed:
            self._say_effective(recording)
        if not math.isfinite(loss):
            raise NotFinite(f"the loss of step {step + 1} is {loss}: stopped")
        self.holds_signals = False
        if self.stop_signal and not self.waits_for_step:
            raise KeyboardInterrupt
        if self.steps_left and self.rank == 0 and not self.effective:
            self.recording = probe.start()

    def _time_left(self) -> str:
        """About how long the remaining steps take: `83s`, `34m` or `3.4h`; empty if unknown."""
        times = self.step_times[1:][-20:]  # the first one compiles
        if not times or not self.steps_left:
            return ""
        seconds = statistics.median(times) * self.steps_left
        if seconds < 100:
            return f"{seconds:.0f}s"
        minutes = seconds / 60
        return f"{minutes:.0f}m" if minutes < 100 else f"{minutes / 60:.1f}h"

    @contextmanager
    def between_steps(self):
        """Pause the profile for work that is not part of a step."""
        recording = self._stop_recording()
        yield
        if recording:
            self.recording = probe.start()

    def _stop_recording(self):
        """The profile that was being recorded, stopped, or None."""
        recording = self.recording
        self.recording = None
        if recording:
            recording.stop()
        return recording

    def _say_effective(self, recording):
        """Print what the recorded step really ran."""
        self.effective = {"matmul": probe.matmul_units(self.args.device)}
        ran = probe.operators(recording)
        if not ran:
            self.print0("note  the profiler of this PyTorch does not tell what a step ran")
        self.effective |= probe.effective(ran)
        if self.scaler.is_enabled():
            self.effective["loss_scale"] = f"{self.scale:g}"
        self.print0(pairs_line("effective", self.effective))

    def _finish(self, status: str):
        """Print the mfu line and RESULT of the steps done."""
        planned = len(self.step_times) + self.steps_left
        if not planned:  # it was resumed after its last step, or was to validate only
            return
        flops = flops_per_token(self.model, self.args.seq_len)
        peak = machine.peak_flops(self.args.device)
        numbers = result(
            self.step_times,
            self.losses,
            steps=planned,
            tokens_per_step=self.tokens_per_step,
            flops_per_token=flops,
            peak_flops=peak,
            world_size=self.world_size,
            peak_bytes=self.peak_bytes,
        )
        self.result = {"script": self.script, "status": status, **numbers, **self.validation}
        if planned < 3:
            self.print0("note  not a measurement: the first two steps of a run are warm-up")
        elif not self.result["measured_steps"]:
            done = f"{len(self.step_times)} of {planned} steps are done"
            self.print0(f"note  not a measurement: {done}, all of them warm-up")
        self.print0(mfu_line(flops, peak, self.result["mfu"]))
        if self.scaler.is_enabled():
            self.result |= {"loss_scale": self.scale, "skipped_steps": self.skipped}
        line = "RESULT " + json.dumps(self.result, allow_nan=False)
        self._to_log(line)
        if not on_screen():
            self._write(sys.stdout, line)
        if self.result["tok_per_s"]:
            self._write(sys.stdout, self._for_people())
            self._doubt()
        if on_screen():
            self._write(sys.stdout, f"log: {self.file.name}")

    def _for_people(self) -> str:
        """RESULT in one line that is not in the log."""
        name = Path(self.script).stem
        line = (
            f"{name}: {self.result['tok_per_s']:,.0f} tok/s, "
            f"{self.result['median_ms']:,.1f} ms a step, "
            f"loss {self.losses[0]:.2f} -> {self.losses[-1]:.2f}"
        )
        if self.validation:
            last, best = self.validation.values()
            line += f", validation loss {last:.4f} (best {best:.4f})"
        if self.folder:
            folder = shlex.quote(str(self.folder))
            line += f"; now: `ladder report {folder}`"
            if Path(self.folder, "best").is_dir():
                line += f", `ladder sample {folder}`"
        return line

    def _doubt(self):
        """Print, on the screen only, why the numbers of RESULT may be wrong."""
        median = self.result["median_ms"]
        slowest = 1e3 * max(self.step_times[self.result["warmup_steps"] :])
        if slowest > 3 * median:
            times = f"{slowest / median:.0f} times the median"
            line = f"one measured step took {slowest:,.0f} ms, {times}: did something else run?"
            self._write(sys.stdout, f"note  {line}")
        if (self.result["mfu"] or 0) > 1:
            line = "MFU is above 100 %: peak_flops (the mfu line) is not the peak of this device"
            self._write(sys.stdout, f"note  {line}")


def on_screen() -> bool:
    """Whether a person reads stdout. Files and pipes get the lines of the log."""
    return sys.stdout.isatty()


def half_life(beta: float) -> float:
    """Steps after which a running mean with this `beta` has forgotten half."""
    return math.log(0.5) / math.log(beta)


def flops_per_token(model, T: int) -> int:
    """FLOPs of forward and backward per token: 6N + 12·L·C·T (PaLM paper, appendix B).

    N counts the parameters without the position table and with the output head once: an untied
    token embedding is looked up, not multiplied.
    """
    config = model.config
    N = sum(p.numel() for name, p in model.named_parameters() if ".wpe." not in name)
    if model.lm_head.weight is not model.transformer.wte.weight:
        N -= model.transformer.wte.weight.numel()
    return 6 * N + 12 * config.n_layer * config.n_embd * T
