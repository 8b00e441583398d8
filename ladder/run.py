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
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import IO

import numpy as np
import torch

from ladder import machine, probe
from ladder.cli import GPUS, largest_batch, signals_to
from ladder.errors import explain, refuse
from ladder.files import FOLDERS, ROOT, SCRIPTS, commit, drop
from ladder.log import pairs_line, printable, step_line, warmup_steps

LEAST_SCALE = 2**-14  # of a float16 run: gradients that overflow below it will not stop to
COMPILING = "the first step takes one to three minutes, seconds with a warm cache"


class NotFinite(Exception):
    """The loss is NaN or infinite: training on makes no sense."""


class Run:
    """Context of one run: prints lines and writes them, flushed, to the log.

    On exit it prints RESULT. An error whose cause is known becomes one line on stderr and exit
    status 2, a loss that is not finite status 1, Ctrl-C status 130, SIGTERM 143 and SIGHUP 129.
    RESULT then covers the steps done, and its `status` says so; `stopped` is a run that ended
    before its last step. If the screen or the log can no longer be written, the run continues with
    the other one and exits with status 2. Other ranks than 0 write no log and print only errors.
    """

    def __init__(self, script: str, args, rank: int = 0, ranks: int = 1):
        self.args, self.rank, self.ranks = args, rank, ranks
        path = Path(script).resolve()
        self.script = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
        ours = (*SCRIPTS, *FOLDERS)
        self.ours = path.is_relative_to(ROOT) and self.script.split("/")[0] in ours
        self.step_times: list[float] = []  # seconds
        self.losses: list[float] = []
        self.signal = 0  # the one that ends the run ...
        self.held = 0  # ... once these blocks are done: see _whole
        self.waits_for_step = False  # SIGTERM and SIGHUP only set `stop`, which the loop reads
        self.stop = 0
        self.lost = getattr(args, "lost", False)  # whether lines could not be written
        self.model, self.first_step = None, 0
        self.scaler = torch.amp.GradScaler(enabled=False)  # of a script with autocast, its own
        self.skipped = 0  # steps whose gradient overflowed float16
        self.recording = None  # the profile of the second step, while that runs
        self.operators = self.effective = self.peak_bytes = None
        self.result = None

    def __enter__(self):
        # PyTorch's CUDA build warns while compiling that there is no GPU: silence it.
        logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
        # PyTorch 2.15 logs 30 lines before the error that becomes our one line.
        logging.getLogger("torch._inductor.scheduler").setLevel(logging.CRITICAL + 1)
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="backslashreplace")  # its encoding may be ASCII
        if self.ranks == 1 and "RANK" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1":
            if os.environ["RANK"] != "0" and torch.distributed.is_torchelastic_launched():
                raise SystemExit(0)  # at a failure torchrun might end rank 0 before it says why
            refuse(f"torchrun would train copies of {self.script}: for several GPUs use ddp_run.py")
        try:
            while (spare := os.open(os.devnull, os.O_RDWR)) <= 2:
                pass  # some daemons close 0, 1 and 2
            os.close(spare)
            self.file = self._open_log()
        except OSError as error:
            refuse(f"cannot write the log {error.filename}: {error.strerror}")
        self.signals = signals_to(self._on_signal)
        self.signals.__enter__()
        try:
            if self.args.device.type in GPUS:
                gpu = torch.get_device_module(self.args.device)
                gpu.init()  # reset_peak_memory_stats fails before it
                if self.args.device.index is not None:  # else GPU 0 is used too
                    gpu.set_device(self.args.device)
                gpu.reset_peak_memory_stats(self.args.device)
            # More than all cores: in a climb the run before this one used them.
            if line := machine.busy(machine.load(), 1.5):
                self.say(f"note  {line}")
            self.say("note  loading text and model: seconds, or a minute at the first start")
        except BaseException as error:  # also Ctrl-C, and a closed pipe
            self.__exit__(type(error), error, None)
            raise
        return self

    def _open_log(self):
        """Open a new file: in containers, runs of the same second can have the same process id."""
        if self.rank:
            return open(os.devnull, "w")
        folder = Path(self.args.log_dir)
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{Path(self.script).stem[:50]}-{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}"
        for again in count():
            with suppress(FileExistsError):
                path = folder / (f"{name}-{again}.log" if again else f"{name}.log")
                return path.open("x", encoding="utf-8")

    def __exit__(self, kind, error, traceback):
        self.held += 1  # from here on no signal interrupts what is written
        self._stop_recording()  # if the second step did not finish
        line = None
        if error is None:
            status, end = 0, "stopped" if self._steps_left() else "ok"
        elif isinstance(error, KeyboardInterrupt):
            status, end = 128 + (self.signal or signal.SIGINT), "interrupted"
        elif isinstance(error, NotFinite):
            status, end, line = 1, "not finite", str(error)
        elif isinstance(error, SystemExit):  # another rank has printed why
            status, end = error.code, None
        elif line := explain(error):
            status, end, line = 2, "failed", line + self._what_fits(line)
        else:  # a bug in a script: its traceback follows
            status, end = None, "failed"
            line = f"{type(error).__name__}: {error}".splitlines()[0]
        with self.file:
            if line:
                self.say(f"error {line}", sys.stderr)
            if end and self.model is not None:  # else it failed before the run line
                self._finish(end)
        # If it was interrupted and is the program itself, the process ends now. Then the handler
        # stays, so that another Ctrl-C does not print a traceback.
        if not self.signal or Path(sys.argv[0]).name != Path(self.script).name:
            self.signals.__exit__(None, None, None)
        self.args.stop, self.args.lost = self.stop or self.signal, self.lost
        trial = getattr(self.args, "hours", None)  # `ranks.settle` reads both after it
        if status is not None and (status or (self.lost and not trial)):
            raise SystemExit(status or 2) from None

    def _what_fits(self, line: str) -> str:
        """What to add to a line that says that a GPU's memory is full: the B that fits."""
        stem, args = Path(self.script).stem, self.args
        rung = {"baseline": "0", "ddp_run": "10"}.get(stem, stem[:2])
        full = line.startswith("out of memory")
        if not (full and args.device.type in GPUS and rung.isdecimal()):
            return ""
        gpu = torch.get_device_module(args.device)
        try:
            memory = gpu.mem_get_info(args.device)[0] + gpu.memory_reserved(args.device)
        except RuntimeError:  # too full for PyTorch to start on it
            return ""
        # ddp_run.py keeps gradients between micro-steps, and DDP's buckets hold them once more.
        more = 0
        if stem == "ddp_run":
            more = 8 if self.ranks > 1 else 4
        B = largest_batch(int(rung), args.model, args.seq_len, memory, args.batch_size - 1, more)
        found = f"B={B} fits" if B else "not even B=1 fits"
        return f"; counting tensors, {found} in the {memory / 1e9:.1f} GB that this run can have"

    def _on_signal(self, number, _frame) -> None:
        """End the run, unless it is already ending and about to print RESULT."""
        if self.waits_for_step and number != signal.SIGINT:
            self.stop = number
        else:
            self.signal = number
            if not self.held:
                raise KeyboardInterrupt

    @contextmanager
    def _whole(self):
        """Delay signals until the block is done: a step is recorded everywhere or nowhere."""
        self.held += 1
        try:
            yield
        finally:
            self.held -= 1
        if self.signal and not self.held:
            raise KeyboardInterrupt

    def say(self, line: str, stream=None) -> None:
        """Write one line to the log and print it, flushing both.

        A closed pipe (`| head`, or `| tee` after Ctrl-C) counts as Ctrl-C, in ddp_run.py as
        SIGTERM; RESULT is then in the log. On a full disk only the lines that go there are lost.
        """
        self._write((self.file, line), (stream or sys.stdout, line))

    def _write(self, *lines: tuple[IO, str]) -> None:
        """Print each line to the stream beside it; see `say`."""
        if self.rank:  # it says only why it failed
            lines = [(out, f"rank {self.rank}: {line}") for out, line in lines if out is sys.stderr]
        with self._whole():
            for out, line in lines:
                try:
                    print(printable(line), file=out, flush=True)
                except BrokenPipeError:
                    drop(out)
                    if self.waits_for_step:  # what sent this run SIGTERM may have ended tee first
                        self.stop = self.stop or signal.SIGTERM
                    else:
                        self.signal = self.signal or signal.SIGINT
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
        self.first_step = first_step
        self.scale = self.scaler.get_scale()
        self.tokens_per_step = tokens_per_step or batches.B * batches.T
        self.model = model
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
        if not self.ours:
            self.say(f"note  {self.script} is not in that commit: only what it imports is")
        off = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")
        if off := [name for name in off if os.environ.get(name) == "1"]:
            self.say(f"note  {off[0]}=1: torch.compile does nothing")
        # ddp_run.py passes the model that it has not wrapped.
        elif hasattr(model, "_orig_mod") or getattr(self.args, "no_compile", None) is False:
            self.say(f"note  compiling: {COMPILING}")

    def log(self, step: int, loss: float, dt: float, tok_per_s: float, **more: float) -> None:
        """Print one step line. `dt` is in seconds; `more` are values that a rung adds.

        It also profiles the second step, a warm-up step, and prints the `effective` line from it.
        """
        with self._whole():
            self.step_times.append(dt)
            self.losses.append(loss)
            line = step_line(step, self.args.steps, loss=loss, dt=dt, tok_per_s=tok_per_s, **more)
            self._write((self.file, line), (sys.stdout, line + self._time_left()))
            self._watch_scale(step)
            self.peak_bytes = machine.peak_bytes(self.args.device)
            if recording := self._stop_recording():
                units = probe.matmul_units(self.args.device)
                self.operators = probe.operators(recording)
                self.effective = {"matmul": units, **probe.effective(self.operators)}
                if self.scaler.is_enabled():
                    self.effective["loss_scale"] = f"{self.scale:g}"
                self.say(pairs_line("effective", self.effective))
        if not math.isfinite(loss):
            raise NotFinite(f"the loss of step {step + 1} is {loss}: stopped")
        if len(self.step_times) == 1 and self._steps_left() and not self.rank:
            self.recording = probe.start()

    def _watch_scale(self, step: int) -> None:
        """Say that the scaler skipped this step: it then made its scale smaller."""
        before, self.scale = self.scale, self.scaler.get_scale()
        if self.scale < before:
            self.skipped += 1
            scales = f"the loss scale goes from {before:g} to {self.scale:g}"
            self.say(f"note  step {step + 1} skipped: a gradient overflowed float16; {scales}")
            if self.scale < LEAST_SCALE:
                raise NotFinite(f"gradients overflow float16 at a loss scale of {self.scale:g} too")

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
            probe.stop(recording)
        return recording

    def _steps_left(self) -> int:
        return max(0, self.args.steps - self.first_step - len(self.step_times))

    def _time_left(self) -> str:
        """` | left 42 s`, by the last steps; the first one, which compiles, does not count."""
        times = self.step_times[max(1, len(self.step_times) - 20) :]
        if not times or not self._steps_left():
            return ""
        seconds = statistics.median(times) * self._steps_left()
        if seconds >= 7200:
            return f" | left {seconds / 3600:.1f} h"
        return f" | left {seconds / 60:.0f} min" if seconds >= 120 else f" | left {seconds:.0f} s"

    def _finish(self, status: str) -> None:
        """Print the mfu line and RESULT of the steps done."""
        planned = len(self.step_times) + self._steps_left()
        if self.step_times and not self.effective:
            self.say("effective unknown")
        if 0 < planned < 3:
            self.say("note  not a measurement: the first two steps of a run are warm-up")
        warmup = warmup_steps(planned)
        times = self.step_times[warmup:]
        p10, median, p90 = np.percentile(times, (10, 50, 90)) if times else [None] * 3
        tok_per_s = self.tokens_per_step / median if median else None
        flops = flops_per_token(self.model, self.args.seq_len)
        peak = machine.peak_flops(self.args.device)
        mfu = flops * tok_per_s / (peak * self.ranks) if tok_per_s and peak else None
        facts = {
            "mfu": f"{mfu:.4f}" if mfu else "unknown",
            "formula": "6N+12LCT",
            "flops_per_token": flops,
            "peak_flops": f"{peak:.4g}" if peak else "unknown",
        }
        line = pairs_line("mfu", facts)  # of use to people where something in it is known
        self._write((self.file, line), *([(sys.stdout, line)] if peak else []))
        self.result = {
            "script": self.script,
            "status": status,
            "median_ms": _ms(median),
            "p10_ms": _ms(p10),
            "p90_ms": _ms(p90),
            "measured_steps": len(times),
            "warmup_steps": min(warmup, len(self.step_times)),
            "tok_per_s": round(tok_per_s, 1) if tok_per_s else None,
            "mfu": round(mfu, 4) if mfu else None,
            "peak_bytes": self.peak_bytes,
            "first_step_ms": _ms(self.step_times[0] if self.step_times else None),
            "first_loss": _finite(self.losses[0] if self.losses else None),
            "final_loss": _finite(self.losses[-1] if self.losses else None),
        }
        if self.scaler.is_enabled():
            self.result |= {"loss_scale": self.scale, "skipped_steps": self.skipped}
        self.say("RESULT " + json.dumps(self.result, allow_nan=False))
        if tok_per_s:
            self._write((sys.stdout, self._for_people()))

    def _for_people(self) -> str:
        """RESULT in one line that is not in the log, and the command that shows the next rung."""
        result, path = self.result, ROOT / self.script
        words = path.read_text("utf-8", "replace").partition("\n")[0] if path.is_file() else ""
        title = words[3:].partition(":")[0] if words.startswith('"""') else path.stem
        ms, memory = result["median_ms"], result["peak_bytes"]
        line = f"{title}: {result['tok_per_s']:,.0f} tok/s, {ms:,.{int(ms < 100)}f} ms a step "
        line += f"({result['measured_steps']} of {len(self.step_times)} steps measured), "
        line += f"{memory / 1e9:.1f} GB, " if memory else ""
        line += f"loss {self.losses[0]:.2f} -> {self.losses[-1]:.2f}"
        number = "00" if path.stem == "baseline" else path.stem[:2]
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


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(float(seconds) * 1e3, 3)


def _finite(loss: float | None) -> float | None:
    return loss if loss is not None and math.isfinite(loss) else None
