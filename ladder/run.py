"""One run of a script: its log file, header, step lines, probe and RESULT."""

import json
import logging
import math
import os
import platform
import signal
import statistics
import sys
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO

import torch

from ladder import machine, probe
from ladder.cli import signals_to
from ladder.errors import explain, refuse
from ladder.files import ROOT, commit, drop
from ladder.log import mfu_line, pairs_line, result, step_line
from ladder.text import printable

NO_SCALER = torch.amp.GradScaler(enabled=False)


class NotFinite(Exception):
    """The loss is NaN or infinite: training on makes no sense."""


class Run:
    """Context of one run: prints lines and writes them, flushed, to the log.

    On exit it prints RESULT. An error whose cause is known becomes one line on stderr and exit
    status 2, a loss that is not finite status 1, Ctrl-C status 130, SIGTERM 143 and SIGHUP 129.
    RESULT then covers the steps done, and its `status` says so; `stopped` is a run that ended
    before its last step. If the screen or the log can no longer be written, the run continues with
    the other one and exits with status 2. Other ranks than 0 write no log and print only errors.

    A script that sets `waits_for_step` reads `stop` after each step: the first signal only sets it.
    A second Ctrl-C interrupts the script.
    """

    def __init__(self, script: str, args, rank: int = 0, ranks: int = 1):
        self.args, self.rank, self.ranks = args, rank, ranks
        path = Path(script).resolve()
        self.script = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
        self.step_times: list[float] = []  # seconds
        self.losses: list[float] = []
        self.waits_for_step, self.stop = False, 0  # stop: the first signal's number
        self.writing = False  # a step or RESULT: a signal waits for that
        self.lost = False  # whether lines could not be written
        self.model, self.left = None, 0  # steps not done yet
        self.scaler = NO_SCALER  # a script with autocast has its own
        self.skipped = 0  # steps whose gradient overflowed float16
        self.recording = None  # the profile of the second step, while that runs
        self.effective = self.peak_bytes = self.result = None

    def __enter__(self):
        # PyTorch's CUDA build warns while compiling that there is no GPU: silence it.
        logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
        # PyTorch 2.15 logs 30 lines before the error that becomes our one line.
        logging.getLogger("torch._inductor.scheduler").setLevel(logging.CRITICAL + 1)
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="backslashreplace")  # its encoding may be ASCII
        if self.ranks == 1 and "RANK" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1":
            refuse(f"torchrun would train copies of {self.script}: for several GPUs use ddp_run.py")
        try:
            if self.args.device.index is not None:  # else GPU 0 is used too
                torch.cuda.set_device(self.args.device)
            self.file = self._open_log()
        except OSError as error:
            refuse(f"--log-dir: cannot write {error.filename}: {error.strerror}")
        except RuntimeError as error:  # of CUDA, which starts here
            refuse(explain(error) or error)
        self.signals = signals_to(self._on_signal)
        self.signals.__enter__()
        return self

    def _open_log(self) -> IO:
        if self.rank:
            return open(os.devnull, "w")
        folder = Path(self.args.log_dir)
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{Path(self.script).stem}-{datetime.now():%Y%m%d-%H%M%S-%f}.log"
        return (folder / name).open("x", encoding="utf-8")

    def __exit__(self, kind, error, traceback):
        self.writing = True  # from here on no signal interrupts
        self._stop_recording()  # if the second step did not finish
        status, end, line = 0, "stopped" if self.left else "ok", None
        if isinstance(error, KeyboardInterrupt):
            status, end = 128 + (self.stop or signal.SIGINT), "interrupted"
        elif isinstance(error, NotFinite):
            status, end, line = 1, "not finite", str(error)
        elif isinstance(error, SystemExit):  # why was printed where it was raised
            status, end = error.code, None
        elif error and (line := explain(error)):
            status, end = 2, "failed"
        elif error:  # a bug in a script: its traceback follows
            status, end = None, "failed"
            line = f"{type(error).__name__}: {error}".splitlines()[0]
        with self.file:
            if line:
                self.say(f"error {line}", sys.stderr)
            if end and self.model is not None:  # else it failed before the run line
                self._finish(end)
        self.signals.__exit__(None, None, None)
        if status is not None and (status or self.lost):
            raise SystemExit(status or 2) from None

    def _on_signal(self, number, _frame=None) -> None:
        """End the run: at once, or after the step that is under way or being recorded."""
        again = self.stop and number == signal.SIGINT
        self.stop = self.stop or number
        if not self.writing and (again or not self.waits_for_step):
            raise KeyboardInterrupt
        if self.waits_for_step and not self.rank:
            with suppress(OSError, RuntimeError):  # closed, or in the middle of a print
                print("note  finishing this step; Ctrl-C stops at once", file=sys.stderr)

    def say(self, line: str, stream: IO | None = None) -> None:
        """Write one line to the log and print it, flushing both.

        A closed pipe (`| head`, or `| tee` after Ctrl-C) counts as Ctrl-C, in ddp_run.py as
        SIGTERM; RESULT is then in the log. On a full disk only the lines that go there are lost.
        """
        self._write(self.file, line)
        self._write(stream or sys.stdout, line)

    def _write(self, out: IO, line: str) -> None:
        if self.rank:  # it says only why it failed
            if out is not sys.stderr:
                return
            line = f"rank {self.rank}: {line}"
        try:
            print(printable(line), file=out, flush=True)
        except BrokenPipeError:
            drop(out)
            # What sent ddp_run.py SIGTERM may have ended tee first.
            self._on_signal(signal.SIGTERM if self.waits_for_step else signal.SIGINT)
        except OSError as error:
            drop(out)
            self.lost = True
            why = f"cannot write {out.name}: {error.strerror}"
            self.say(f"error {why}: the run goes on without it", sys.stderr)

    def header(self, model, batches, tokens_per_step=None, first_step: int = 0, **more) -> None:
        """Print the run line: what is about to run, where, and on which data.

        `tokens_per_step` is B·T by default. `first_step` is where a resumed run starts. `more` is
        added to the line.
        """
        self.left = max(0, self.args.steps - first_step)
        self.scale = self.scaler.get_scale()
        self.tokens_per_step = tokens_per_step or batches.B * batches.T
        self.model = model
        if self.rank:
            return
        epoch = batches.rows_per_epoch * batches.T / self.tokens_per_step
        self.facts = {
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
        self.say(pairs_line("run", self.facts))
        if self.scaler is not NO_SCALER and machine.half_precision(self.args.device).itemsize > 2:
            self.say("note  autocast stays off: without AVX-512 bfloat16 is slower than FP32 here")
        # ddp_run.py passes the model that it has not wrapped.
        if hasattr(model, "_orig_mod") or getattr(self.args, "no_compile", None) is False:
            self.say("note  compiling: the first step takes minutes, seconds with a warm cache")

    def log(self, step: int, loss: float, dt: float, tok_per_s: float, **more: float) -> None:
        """Print one step line. `dt` is in seconds; `more` are values that a rung adds.

        It also profiles the second step, a warm-up step, and prints the `effective` line from it;
        if float16 overflowed in that step, of the next one in which it did not.
        """
        self.writing = True  # a step is recorded everywhere or nowhere
        self.step_times.append(dt)
        self.losses.append(loss)
        self.left -= 1
        line = step_line(step, self.args.steps, loss=loss, dt=dt, tok_per_s=tok_per_s, **more)
        self._write(self.file, line)
        if self.left and (times := self.step_times[1:][-20:]):  # the first one compiles
            seconds = round(statistics.median(times) * self.left)
            line += f" | left {timedelta(seconds=seconds)}"
        self._write(sys.stdout, line)
        before, self.scale = self.scale, self.scaler.get_scale()
        if skipped := self.scale < before:
            self.skipped += 1
            self.say(f"note  step {step + 1} skipped: a gradient overflowed float16")
        self.peak_bytes = machine.peak_bytes(self.args.device)
        if (recording := self._stop_recording()) and not skipped:
            self.effective = {"matmul": probe.matmul_units(self.args.device)}
            self.effective |= probe.effective(probe.operators(recording))
            if self.scaler.is_enabled():
                self.effective["loss_scale"] = f"{self.scale:g}"
            self.say(pairs_line("effective", self.effective))
        if not math.isfinite(loss):
            raise NotFinite(f"the loss of step {step + 1} is {loss}: stopped")
        self.writing = False
        if self.stop and not self.waits_for_step:
            raise KeyboardInterrupt
        if self.left and not (self.effective or self.rank):
            self.recording = probe.start()

    @contextmanager
    def between_steps(self):
        """Pause the profile for work that is not part of a step."""
        recording = self._stop_recording()
        yield
        if recording:
            self.recording = probe.start()

    def _stop_recording(self):
        recording, self.recording = self.recording, None
        if recording:
            recording.stop()
        return recording

    def _finish(self, status: str) -> None:
        """Print the mfu line and RESULT of the steps done."""
        planned = len(self.step_times) + self.left
        if self.step_times and not self.effective:
            self.say("effective unknown")
        if 0 < planned < 3:
            self.say("note  not a measurement: the first two steps of a run are warm-up")
        flops = flops_per_token(self.model, self.args.seq_len)
        peak = machine.peak_flops(self.args.device)
        facts = dict(flops_per_token=flops, peak_flops=peak, peak_bytes=self.peak_bytes)
        facts |= dict(steps=planned, tokens_per_step=self.tokens_per_step, ranks=self.ranks)
        self.result = {"script": self.script, "status": status}
        self.result |= result(self.step_times, self.losses, **facts)
        self.say(mfu_line(flops, peak, self.result["mfu"]))
        if self.scaler.is_enabled():
            self.result |= {"loss_scale": self.scale, "skipped_steps": self.skipped}
        self.say("RESULT " + json.dumps(self.result, allow_nan=False))
        if self.result["tok_per_s"]:
            self._write(sys.stdout, self._for_people())

    def _for_people(self) -> str:
        """RESULT in one line that is not in the log, and the command that shows the next rung."""
        found, name = self.result, Path(self.script).stem
        ms, memory = found["median_ms"], found["peak_bytes"]
        line = f"{name}: {found['tok_per_s']:,.0f} tok/s, {ms:,.{int(ms < 100)}f} ms a step "
        line += f"({found['measured_steps']} of {len(self.step_times)} steps measured), "
        line += f"{memory / 1e9:.1f} GB, " if memory else ""
        line += f"loss {self.losses[0]:.2f} -> {self.losses[-1]:.2f}"
        number = "00" if name == "baseline" else name[:2]
        if number.isdecimal() and any(ROOT.glob(f"*/{int(number) + 1:02d}_*.py")):
            line += f"; next: ladder diff {int(number) + 1}"
        return line


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
