"""Say what this machine is, which rungs run on it and which can make it faster.

The command runs each rung for three steps of the model `tiny`, and looks at
what really ran (the line `effective` of its log) and at the losses, beside
those of the rung before. It takes a few minutes, most of them to compile. The
exit status is 1 if a rung cannot run, or PyTorch does not see a GPU whose
driver is here.

  ladder doctor                    for the best device there is
  ladder doctor --device cpu       for another one
"""

import platform
import tempfile
from argparse import ArgumentParser, Namespace
from pathlib import Path

import torch

from ladder.cli import add_flags, pick_device
from ladder.errors import UsageError
from ladder.log import Log, read_log
from ladder.machine import device_name, unseen_gpu
from ladder.measure.effective import declared_here, differences
from ladder.measure.notes import describe, title
from ladder.measure.process import check_ended_well, start_python
from ladder.measure.scripts import base_of, rungs_for
from ladder.show.console import screen

FLAGS = ("--model=tiny", "--steps=3", "--batch-size=4", "--seq-len=128")
TOLERANCE = 0.02  # nats: ten times what half precision moves these losses
# What these steps are too short to show: climbs are in RUNLOG.md.
NO_GAIN_ON_CPUS = ("06_flash_attention", "07_vocab_50304")


def add_arguments(parser: ArgumentParser):
    add_flags(parser, "device")


def main(args: Namespace) -> int:
    """Print what the machine is, and a line for each rung. The first that cannot run is the last.

    Returns 1 if a rung cannot run, or a GPU is not seen.
    """
    device = pick_device(args.device)
    console = screen()
    console.say(
        f"{device_name(device)}, torch {torch.__version__}, Python {platform.python_version()}"
    )
    unseen = unseen_gpu() if args.device is None else None
    if unseen:
        console.say(f"note  {unseen}")
    console.say("Can a rung help? Three steps of each: a few minutes, most of them to compile")
    logs = {}
    failed = False
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for path in rungs_for(device.type):
            try:
                logs[path] = three_steps(path, device, Path(folder))
                helps, why = judge(path, logs, device)
            except UsageError as error:
                failed = True
                helps, why = "cannot run", f"{error} (so none above it runs)"
            console.say(f"{title(path):22s}{helps:8s}{why}")
            if failed:
                break
    return int(failed or unseen is not None)


def three_steps(path: Path, device: torch.device, folder: Path) -> Log:
    """The log of a rung's steps. Raises UsageError, saying why, if it failed."""
    log_dir = folder / path.stem
    flags = (*FLAGS, f"--device={device}", f"--log-dir={log_dir}")
    done = start_python(path, *flags, TORCHINDUCTOR_CACHE_DIR=str(folder / "compiled"))
    check_ended_well(done)
    (log_path,) = log_dir.glob("*.log")
    return read_log(log_path)


def judge(path: Path, logs: dict[Path, Log], device: torch.device) -> tuple[str, str]:
    """Whether a rung that ran can help (yes, no or a dash), and why.

    Raises UsageError if it does not compute what the rung before it does, and should.
    """
    base = base_of(path)
    if base is None:
        return "–", "the reference"
    fields = describe(path)
    log, before = logs[path], logs[base]
    if fields.get("Numerics", "").startswith(("identical", "rounding")):
        check_losses(log, before, title(base))
    for difference in differences([log]):
        return "no", f"it ran {difference}"
    for key in declared_here(path):
        value = log.effective.get(key, "unknown")
        if value == "unknown":
            return value, f"PyTorch does not tell which {key} ran: climb"
        if value == before.effective.get(key):
            return "no", f"{key}={value} as before: this device has no units for it"
    if device.type == "cpu" and path.stem in NO_GAIN_ON_CPUS:
        return "no", "it runs, but gained nothing on CPUs that we measured"
    removes = fields.get("Removes", "nothing: its note does not say what")
    if removes.startswith("nothing"):
        return "–", removes.removeprefix("nothing: ")
    return "yes", f"removes {removes}"


def check_losses(log: Log, before: Log, name: str):
    """Raise UsageError if the losses of two runs differ by more than rounding: some compilers and
    kernels are wrong."""
    for one, other in zip(log.steps, before.steps, strict=True):
        error = abs(one.loss - other.loss)
        if not error < TOLERANCE:  # NaN fails too
            raise UsageError(
                f"its loss of step {one.step} is not that of {name} ({error:.2g} off): try "
                "another version of torch or another compiler (CXX), or run the rungs before it"
            )
