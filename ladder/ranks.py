"""The processes of ddp_run.py: their ranks, how they connect, and what rank 0 does for all."""

import ctypes
import gc
import math
import os
import re
import signal
import socket
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import torch
import torch.distributed as dist

from ladder import checkpoint
from ladder.batches import Batches
from ladder.cli import GPUS, above_zero, count, integer, parse_args, path
from ladder.corpus import Corpus, load_splits
from ladder.errors import BadInput, refuse
from ladder.files import sha256
from ladder.machine import device_name, half_precision, has_bf16
from ladder.run import NotFinite


def _told(name: str, default: int) -> int:
    """A number that torchrun sets for each process; without torchrun there is one process."""
    try:
        return int(os.environ.get(name, default)) if "RANK" in os.environ else default
    except ValueError:
        refuse(f"{name} is {os.environ[name]!r} and no number: unset it, torchrun sets it")


DISTRIBUTED = "RANK" in os.environ
RANK, WORLD = _told("RANK", 0), _told("WORLD_SIZE", 1)
LOCAL_RANK, LOCAL_WORLD = _told("LOCAL_RANK", 0), _told("LOCAL_WORLD_SIZE", 1)
RESTARTS = _told("TORCHELASTIC_RESTART_COUNT", 0)
# Flags that must be equal when a run is resumed, and flags that may differ, with a note.
MUST_AGREE = ("model", "total_batch", "seq_len", "seed", "shuffle")
MAY_CHANGE = ("steps", "max_lr", "warmup", "dtype")
MEASURED = "LADDER_MEASURED"
TRIAL = 6  # steps that --hours tries first: as of any six, the last four are measured
SPARE = 0.02  # of --hours: for checkpoints, and for a machine that slows down as it warms up


@dataclass
class Job:
    """What all ranks agree on before the first step, and the text that each rank reads."""

    text: Corpus
    held_out: Corpus
    micro_steps: int  # per rank and optimizer step
    val_rows: int  # rows of T tokens to validate on; 0 for none
    identity: dict  # what must match for a checkpoint to be resumed
    flags: dict  # what may differ
    folder: str | None  # where checkpoints go; None in a trial, which keeps nothing
    checkpoint: Path | None  # the one to resume
    best: float  # the lowest validation loss so far; -inf where the best model is not kept

    def save(self, say, **state) -> None:
        """Rank 0 saves a checkpoint of `state`."""
        if self.folder:
            if name := checkpoint.not_finite(state["model"]):
                raise NotFinite(f"{name} is not finite after step {state['step']}: it is not saved")
            path = self._write(None, flags=self.flags, **state)
            say(f"note  saved {path}")
            if state["step"] == self.flags["--steps"]:
                say(f"note  and now: ladder sample {self.folder}, ladder export {self.folder} OUT")

    def save_best(self, say, val_loss: float, **state) -> None:
        """Rank 0 saves `state` as the best model, if no validation loss was lower."""
        if val_loss < self.best:
            self.best = val_loss
            path = self._write(checkpoint.BEST, val_loss=val_loss, **state)
            say(f"note  the lowest loss so far: saved {path}")

    def _write(self, name: str | None, **state) -> Path:
        return on_rank_0(checkpoint.save, self.folder, name, identity=self.identity, **state)


def together(train: Callable, doc: str, argv: list[str] | None):
    """train(args) on every rank that torchrun started, or on this process alone.

    Returns what train returns. A rank that fails exits with the status of its SystemExit (2 after
    bad input, 130 after Ctrl-C), and torchrun ends the others; any other exception is a bug, and
    its traceback is printed.
    """
    if not DISTRIBUTED:
        return train(settle(train, parse(doc, argv)))
    try:
        meet()
        args = on_rank_0(parse, doc, argv)
        if args.device.type in GPUS:
            args.device = torch.device(args.device.type, LOCAL_RANK)
        result = train(settle(train, args))
    except SystemExit as end:
        # os._exit skips Python's shutdown, where gloo's threads would abort and hide the status.
        with suppress(AttributeError, OSError):  # None in a daemon, or nobody reads any more
            sys.stdout.flush()
        os._exit(end.code or 0)
    except KeyboardInterrupt:  # before there is a run
        os._exit(130)
    dist.destroy_process_group()
    return result


def settle(train: Callable, args):
    """`args` with the folder of checkpoints, and with the steps that fit into --hours.

    The latter are found by a trial, which is a call of `train`, or are those of the run to resume.
    Exits with status 2 if none fit, and with 0 if the trial was stopped.
    """
    began = None
    if reduced(RESTARTS, op=dist.ReduceOp.MAX):  # a node counts only its own
        # When torchrun started: on the first of the nodes, for one may have been replaced.
        began = -reduced(-started(os.getppid()), op=dist.ReduceOp.MAX)
    args.ckpt_dir = args.ckpt_dir or on_rank_0(default_folder, args.resume, began)
    if began is not None:  # go on, but not with what the first start refused
        args.resume = args.resume or on_rank_0(checkpoint.all_since, args.ckpt_dir, began)
    if not args.hours:
        return args
    planned, hours = Namespace(**{**vars(args), "hours": None}), f"--hours {args.hours:g}"
    if args.resume and (flags := on_rank_0(checkpoint.saved_flags, args.ckpt_dir)):
        planned.steps = flags["--steps"]
        if planned.warmup is None:
            planned.warmup = flags["--warmup"]
        planned.plan = f"{hours}: the {planned.steps} steps of its start are kept"
        return planned
    start = time.monotonic()
    args.plan = f"{hours}: a trial of {TRIAL} steps comes first; it keeps nothing"
    args.steps, args.warmup, args.ckpt_every = TRIAL, 1, 0
    result = train(args)
    if stop := int(reduced(args.stop, op=dist.ReduceOp.MAX)):  # also after its last step
        if RANK == 0:
            print(f"note  {signal.Signals(stop).name}: the run after the trial is not started")
        raise SystemExit(2 if args.lost else 0)
    planned.lost = args.lost
    torch.compiler.reset()  # else it holds the model of the trial
    if dynamo := sys.modules.get("torch._dynamo.utils"):
        dynamo.counters.clear()  # what the trial compiled is no cold cache of the run
    gc.collect()
    if args.device.type != "cpu":
        torch.get_device_module(args.device).empty_cache()
    spent = reduced(time.monotonic() - start, op=dist.ReduceOp.MAX)
    step = result["median_ms"] / 1e3
    planned.steps = steps_within(args.hours * 3600, spent, step, planned.eval_every)
    if planned.steps < 1:
        why = f"a step takes {step:.2g} s, and to start took {spent:.0f} s"
        on_rank_0(refuse, f"{hours} is too short: {why}")
    if planned.warmup is None:
        planned.warmup = max(1, planned.steps // 5)
    planned.plan = f"{hours}: {planned.steps} steps fit, of {step:.3g} s in the trial"
    return planned


def steps_within(seconds: float, spent: float, step: float, eval_every: int) -> int:
    """How many steps of `step` seconds fit after a trial that has `spent` some of the time.

    The run will have to start once more, and to validate at its end: that takes what the trial took
    beside its steps. A validation on the way, forward only and not compiled, counts as half a step.
    """
    left = seconds * (1 - SPARE) - spent - max(0, spent - TRIAL * step)
    return math.floor(left / (step * (1 + (0.5 / eval_every if eval_every else 0))))


def default_folder(resume: bool, began: float | None) -> str:
    """A new folder under checkpoints/ for each job; to resume, that of the last run there.

    A job that torchrun restarted finds its own by the id of torchrun's process, and by when that
    `began`, in seconds since the epoch: in containers many have the same id.
    Exits with status 2 if others have checkpoints, but not the last run that made such a folder.
    """
    process, folder = os.getppid() if DISTRIBUTED else os.getpid(), Path("checkpoints")
    new = f"{folder}/{datetime.now():%Y%m%d-%H%M%S}-{process}"
    if began is not None:
        found = folder.glob(f"[0-9]*-[0-9]*-{process}")
        mine = max((str(own) for own in found if begun(own) >= began), default=None)
        if mine or not resume:
            return mine or new
    if not (resume and (steps := [s for f in folder.glob("*") for s in checkpoint.checkpoints(f)])):
        return new
    own = re.compile(r"\d{8}-\d{6}-\d+")  # a copy of one has another name
    found = ((begun(f), str(f)) for f in folder.glob("*-*-*") if own.fullmatch(f.name))
    # After a restart, the last one that was there when this job began.
    last = max((one for one in found if began is None or one[0] < began), default=(0, None))[1]
    if last not in {str(step.parent) for step in steps}:
        newest = max(steps, key=lambda step: step.stat().st_mtime).parent
        do = f"--ckpt-dir {newest} --resume continues that; leave --resume out to start anew"
        refuse(f"the last run without --ckpt-dir ({last or 'none yet'}) saved no checkpoint: {do}")
    return last


def begun(folder: Path) -> float:
    """When a run made its folder, in seconds since the epoch: names have local time."""
    if not (lock := folder / ".lock").is_file():
        return 0
    with suppress(ValueError):  # it is empty if the run was killed before it wrote that
        return float(lock.read_text())
    return lock.stat().st_mtime


def started(process: int) -> float:
    """When a process started, in seconds since the epoch; 0 where this is not Linux."""
    stat = Path(f"/proc/{process}/stat")
    if not stat.exists():
        return 0
    ticks = int(stat.read_text().rpartition(")")[2].split()[19])  # since the machine started
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def meet() -> None:
    """Connect all ranks, with NCCL or XCCL between GPUs if PyTorch has it, else with gloo.

    Returns when all have joined. Exits with status 2 and one line if they cannot connect.
    """
    if dist.is_torchelastic_launched() and sys.platform == "linux":
        # If torchrun is killed, this rank gets SIGTERM as if torchrun had passed one on.
        PR_SET_PDEATHSIG = 1
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    words = f"note  rank {RANK} of {WORLD} waits for the others: has each been started?"
    waits = threading.Timer(10, print, [words], {"file": sys.stderr, "flush": True})
    waits.start()
    try:
        if not 0 <= RANK < WORLD:
            raise ValueError(f"RANK is {RANK}, WORLD_SIZE {WORLD}")
        found = os.environ.keys() >= {"MASTER_ADDR", "MASTER_PORT"}  # else env:// says what lacks
        if found and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            # torchrun listened before it started this rank. Was it killed since, while this rank
            # imported PyTorch? init_process_group would wait half an hour for it.
            where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
            socket.create_connection(where, timeout=60).close()
        store, rank, world = next(dist.rendezvous("env://"))
        if os.environ.get("GROUP_WORLD_SIZE") == "1":
            # torchrun keeps its store when it restarts the ranks of a node, with the addresses of
            # those that died. (Several nodes count restarts separately: see docs/cluster.md.)
            store = dist.PrefixStore(f"start {RESTARTS}", store)
        # PyTorch for Windows has no NCCL; its gloo also connects GPUs.
        nccl = torch.cuda.is_available() and dist.is_nccl_available()
        xccl = torch.xpu.is_available() and dist.is_xccl_available()
        backend = "cpu:gloo,cuda:nccl" if nccl else "cpu:gloo,xpu:xccl" if xccl else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=world)
    except (ValueError, RuntimeError, OSError) as error:  # variables missing, a port that is taken
        reason = str(error).splitlines()[0]
        refuse(f"the ranks cannot meet: {reason}: start them with torchrun")
    finally:
        waits.cancel()


def on_rank_0(function: Callable, *args, **options):
    """function(*args, **options) of rank 0, on all ranks; `on_all_ranks` says what if it raises."""
    told = [on_all_ranks(lambda: function(*args, **options) if RANK == 0 else None)]
    if DISTRIBUTED:
        dist.broadcast_object_list(told)
    return told[0]


def on_all_ranks(function: Callable, *args):
    """Call function(*args) on every rank. Where it raises, so does this; the others exit with it.

    They exit with the status of its SystemExit (0 after --help), else with 2: a line that says why
    is left to the one that raises.
    """
    result, error, status = None, None, -1
    try:
        result = function(*args)
    except SystemExit as end:
        error, status = end, end.code
    except Exception as trouble:
        error, status = trouble, 2
    status = reduced(status, op=dist.ReduceOp.MAX)
    if error:
        raise error
    if status >= 0:
        raise SystemExit(int(status))
    return result


def reduced(value: float, op) -> float:
    """Sum (dist.ReduceOp.SUM) or maximum (MAX) of a number over all ranks."""
    number = torch.tensor(value, dtype=torch.float64)
    if DISTRIBUTED:
        dist.all_reduce(number, op)
    return number.item()


def add_arguments(parser) -> None:
    """The flags of ddp_run.py beyond those of every script."""
    add = parser.add_argument
    # A limit, because SIGTERM ends a run after a step.
    tokens = integer("positive integer", 1, 2**31, "1 to 2147483647")
    words = "of all ranks (default: CUDA, XPU 524288, else 4096)"
    add("--total-batch", type=tokens, metavar="TOKENS", help=words)
    add("--max-lr", type=above_zero, default=6e-4, help="after the warm-up (default: 6e-4)")
    add("--warmup", type=count, metavar="STEPS", help="(default: a fifth of --steps)")
    seed = dict(type=count, metavar="SEED")
    add("--shuffle", **seed, help="read rows in another order each epoch (default: in order)")
    types = dict(choices=("auto", "bfloat16", "float16", "float32"), default="auto")
    add("--dtype", **types, help="default: auto: bfloat16, or float16 where that is emulated")
    add("--no-compile", action="store_true", help="leave torch.compile out")
    every = dict(type=count, metavar="STEPS")
    add("--eval-every", **every, default=100, help="0: never (default: 100)")
    often = "and at the end; 0: on SIGTERM alone, and no best one either (default: 500)"
    add("--ckpt-every", **every, default=500, help=often)
    add("--ckpt-dir", type=path, help="default: a new folder in checkpoints/")
    add("--resume", action="store_true", help="from the last one in --ckpt-dir, or of the last run")
    add("--init", type=path, help="a checkpoint, or a GPT-2 of transformers (default: none)")
    limit = "as many steps as fit, instead of --steps (default: --steps of them)"
    add("--hours", type=above_zero, metavar="HOURS", help=limit)
    parser.set_defaults(plan=None)  # what `settle` says of --hours


def how_long(args) -> None:
    """Raise BadInput if both flags that say how long to train are given. T has no limit here."""
    if args.steps and args.hours:
        raise BadInput("--steps and --hours both say how long to train: give one of them")


def parse(doc: str, argv: list[str] | None):
    """Parse the flags and fill in defaults. Exits with status 2 if they are invalid."""
    args = parse_args(doc, argv, add_arguments, check=how_long)
    device, kind = args.device, args.device.type
    args.total_batch = args.total_batch or (524288 if kind in GPUS else 4096)
    if MEASURED in os.environ:  # `ladder climb` and others set it: nothing to resume
        args.ckpt_every, args.ckpt_dir = 0, f"{args.log_dir}/checkpoints"
    if args.warmup is None and not args.hours:
        args.warmup = max(1, args.steps // 5)
    if DISTRIBUTED and kind == "mps":
        refuse("gloo does not support Apple GPUs: use --device cpu, or train without torchrun")
    if DISTRIBUTED and kind in GPUS:
        if device.index is not None:
            refuse(f"--device {device}: torchrun assigns a GPU to each process: use {kind}")
        if (gpus := torch.get_device_module(kind).device_count()) < LOCAL_WORLD:
            refuse(
                f"torchrun started {LOCAL_WORLD} processes on this machine, where PyTorch sees "
                f"{gpus} {kind.upper()} devices: --nproc_per_node={gpus}, or train on --device cpu"
            )
    if args.dtype == "bfloat16" and not has_bf16(device):
        refuse(f"{device_name(device)} has no bfloat16 units: leave --dtype out")
    if args.dtype == "float16" and kind in ("mps", "xpu") and has_bf16(device):
        # Fused AdamW may not skip a step on Apple GPUs; Intel's may lack the scaler's FP64.
        name = device_name(device)
        refuse(f"{name} has bfloat16 units, and float16 is not safe on it: leave --dtype out")
    if args.dtype == "auto":
        try:
            args.dtype = str(half_precision(device)).removeprefix("torch.")
        except BadInput as error:
            refuse(error)
    return args


def prepare(args, say) -> Job:
    """Read the corpus on every rank; check it, the flags and the checkpoints. Raises BadInput."""
    if args.plan:
        say(f"note  {args.plan}")
    if MEASURED in os.environ:
        say(f"note  {MEASURED} is set: a checkpoint is saved on SIGTERM alone, in {args.ckpt_dir}")
    # Rank 0 alone downloads and tokenizes, the others then find it done.
    splits = on_all_ranks(lambda: load_splits(args.data, say) if RANK == 0 else None)
    text, held_out = on_all_ranks(lambda: splits or load_splits(args.data, say))
    on_all_ranks(check_alike, on_rank_0(alike, text), alike(text))
    return Job(text, held_out, **on_rank_0(agree, args, text, held_out, say))


def alike(text: Corpus) -> dict[str, str]:
    """What has to be alike on all ranks: the code that runs, PyTorch and the text."""
    program, package = Path(sys.argv[0]), Path(__file__).parent
    files = filter(Path.is_file, [program, *sorted(package.glob("*.py"))])
    return {"code": sha256(files)[:12], "torch": torch.__version__, "data": text.identity}


def check_alike(there: dict[str, str], here: dict[str, str]) -> None:
    """Raise BadInput if `alike` of rank 0 is not that of this rank."""
    found = [f"{key} {here[key]}, rank 0 {there[key]}" for key in here if here[key] != there[key]]
    if found:
        raise BadInput(f"this rank has {'; '.join(found)}: give every machine the same")


def agree(args, text: Corpus, held_out: Corpus, say) -> dict:
    """The fields of Job except the texts. Raises BadInput."""
    B, T = args.batch_size, args.seq_len
    micro_steps, odd = divmod(args.total_batch, WORLD * B * T)
    if odd:
        near = [n * WORLD * B * T for n in (micro_steps, micro_steps + 1) if n]
        raise BadInput(
            f"--total-batch {args.total_batch} is not a multiple of {WORLD * B * T} ({WORLD} ranks "
            f"x B={B} x T={T}); the nearest are: {', '.join(map(str, near))}"
        )
    Batches(text, B, T)  # raises BadInput if the text is too short
    val_rows = 0
    if args.eval_every:
        batches = Batches(held_out, 1, T)
        val_rows = min(args.total_batch // T, batches.rows_per_epoch)
        batches.rows(range(val_rows))  # raises BadInput on an id that GPT-2 lacks
    # With other held-out text the text to train on may end elsewhere, and losses do not compare.
    texts = {"data": text.identity, "held-out text": held_out.identity}
    identity, flags = texts | named(args, MUST_AGREE), named(args, MAY_CHANGE)
    job = dict(micro_steps=micro_steps, val_rows=val_rows, identity=identity, flags=flags)
    found = checkpoint.choose(args.ckpt_dir, args.resume, identity, flags, say)
    if args.init and found:
        say(f"note  --init {args.init} is left out: the checkpoint has the weights")
    if args.hours:  # the trial, which only checks that the run after it may use the folder
        return job | dict(folder=None, checkpoint=None, best=-math.inf)
    if args.resume and not found:
        say(f"note  no checkpoint in {args.ckpt_dir}: starting from the beginning")
    best = -math.inf
    if args.ckpt_every:
        best = checkpoint.best_loss(args.ckpt_dir, identity, found, say)
    return job | dict(folder=args.ckpt_dir, checkpoint=found, best=best)


def named(args, names: tuple[str, ...]) -> dict:
    """The flags as a checkpoint stores them, by their command-line names."""
    return {f"--{name.replace('_', '-')}": getattr(args, name) for name in names}
