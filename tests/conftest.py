"""Shared by the tests: a small real text as a shard, and scripts run as users run them."""

import functools
import importlib.util
import os
import signal
import subprocess
import sys
from difflib import unified_diff
from pathlib import Path
from pydoc_data.topics import topics
from types import SimpleNamespace

# Before torch: two tests at a time have a core each, and so have the processes they start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
import torch

from ladder import checkpoint, machine
from ladder.cli import MODELS
from ladder.measure.parser import read_log
from ladder.measure.scripts import ROOT, chain, number_of
from ladder.show.docstrings import parts_of

SMALL = ["--model", "tiny", "--batch-size", "2", "--seq-len", "64", "--device", "cpu"]
# cuDNN below 9.15.1 may read out of bounds where 128 does not divide T (pytorch issue 169849).
ON_CUDA = ["--model", "tiny", "--batch-size", "2", "--seq-len", "128", "--device", "cuda"]
TINY = dict(MODELS["tiny"])
SMALLER = dict(n_layer=2, n_head=2, n_embd=64, vocab_size=256)  # a step takes 0.1 s, not 2 s
SCRIPTS = {number_of(path): path for path in reversed(chain())}
HALF = str(machine.half_precision(torch.device("cpu"))).removeprefix("torch.")
AUTOCAST = "off" if HALF == "float32" else HALF  # what a rung from 03 on logs on this CPU

# Ignored under nohup, or behind `&` in a script: the tests' signals would do nothing.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("cuda") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="no CUDA GPU here"))


def load(path: Path):
    """Import a script by its path (a rung's name is no identifier)."""
    spec = importlib.util.spec_from_file_location(f"script_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


write_shard = load(ROOT / "data" / "prepare.py").write_shard


def rung(number: int) -> Path:
    """The path of rung or candidate `number`: of the rung, if both have it."""
    return SCRIPTS[number]


def with_mistake(script: Path, right: str, wrong: str, path: Path) -> Path:
    """Write a rung or candidate with a mistake in its code to `path`: `wrong` for `right`."""
    docstring, code = parts_of(script)
    assert code.count(right) == 1, right
    path.write_text(docstring + code.replace(right, wrong))
    return path


@pytest.fixture
def bytes_for_tokens(monkeypatch):
    """Texts are tokenized into their bytes, <|endoftext|> into 50256."""

    def encode(text, allowed_special):
        (mark,) = allowed_special
        first, *rest = text.encode().split(mark.encode())
        ids = [*first]
        for document in rest:
            ids += [50256, *document]
        return ids

    vocabulary = SimpleNamespace(encode=encode)
    monkeypatch.setattr("ladder.corpus.gpt2_vocabulary", lambda: vocabulary)


@pytest.fixture(scope="session")
def shard(tmp_path_factory) -> Path:
    """Python's own documentation, one token per byte: real text that every machine has."""
    texts = [topics[key] for key in sorted(topics)]
    text = "\n\n".join(texts).encode()[:100_000]
    path = tmp_path_factory.mktemp("corpus") / "topics.bin"
    write_shard(path, np.frombuffer(text, np.uint8).astype(np.uint16))
    return path


@pytest.fixture(scope="session", autouse=True)
def compile_cache(tmp_path_factory):
    """One compile cache for all tests and pytest-xdist's workers: what one compiled, all reuse."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(base / "inductor")


@pytest.fixture(autouse=True)
def default_precision():
    """Rungs from 02 on set this for the whole process."""
    yield
    torch.set_float32_matmul_precision("highest")


# What PyTorch says of a GPU: kind, name, bytes, and what tells its architecture.
CARDS = {
    "P100": ("cuda", "Tesla P100-PCIE-16GB", 17.1e9, (6, 0)),
    "T4": ("cuda", "Tesla T4", 15.6e9, (7, 5)),
    "RTX 3060 12GB": ("cuda", "NVIDIA GeForce RTX 3060", 12.6e9, (8, 6)),
    "RTX 4090": ("cuda", "NVIDIA GeForce RTX 4090", 25.3e9, (8, 9)),
    "A100 40GB": ("cuda", "NVIDIA A100-SXM4-40GB", 42.3e9, (8, 0)),
    "H100": ("cuda", "NVIDIA H100 80GB HBM3", 85e9, (9, 0)),
    "MI50": ("cuda", "AMD Instinct MI50", 17.2e9, "gfx906:sramecc+:xnack-"),
    "MI300X": ("cuda", "AMD Instinct MI300X", 205.8e9, "gfx942:sramecc+:xnack-"),
    "M3": ("mps", "Apple M3 GPU", 11.5e9, (0, 0)),
}


@pytest.fixture
def card(monkeypatch):
    """card(name): from now on PyTorch sees this GPU of CARDS, and no other. Returns its device.

    Nothing can be computed on it.
    """

    def see(name: str) -> torch.device:
        kind, full_name, memory, chip = CARDS[name]
        amd = isinstance(chip, str)
        major, minor = (9, 4) if amd else chip  # HIP says so of gfx942
        gpu = SimpleNamespace(name=full_name, total_memory=int(memory), uuid="0-0")
        gpu.major, gpu.minor, gpu.gcnArchName = major, minor, chip
        answers = dict.fromkeys(("init", "set_device", "reset_peak_memory_stats"))
        answers |= dict(is_available=True, device_count=1, max_memory_allocated=0)
        answers |= dict(is_bf16_supported=True)  # which counts emulation, and all of AMD's
        answers |= dict(get_device_properties=gpu, get_device_name=full_name)
        answers |= dict(get_device_capability=(major, minor))
        if kind == "cuda":
            for function, answer in answers.items():
                monkeypatch.setattr(torch.cuda, function, lambda *_, a=answer, **__: a)
        monkeypatch.setattr(torch.version, "hip", "7.2" if amd else None)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: kind == "mps")
        device = torch.device(kind)
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: device)
        return device

    return see


def random_batch(B=2, T=48, V=50257):
    """Inputs and targets of B rows, the same at each call."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, V, (B, T + 1), generator=generator)
    return ids[:, :-1], ids[:, 1:]


def relative_error(value, exact) -> float:
    """|value - exact| / |exact|, of two tensors."""
    error = value.float() - exact.float()
    return (error.norm() / exact.float().norm()).item()


def closed_pipe():
    """A file to write to that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "w")


def run_script(path, *flags, env=None, **options):
    """Run a script in a process of its own and return the finished process."""
    words = [sys.executable, path, *map(str, flags)]
    options |= dict(capture_output=True, text=True, timeout=900)
    return subprocess.run(words, cwd=ROOT, env={**os.environ, **(env or {})}, **options)


@pytest.fixture
def small_model(monkeypatch):
    """`tiny` is as small as the text allows."""
    monkeypatch.setitem(MODELS, "tiny", SMALLER)


@pytest.fixture
def run_main(shard, tmp_path, small_model):
    """run_main(module, *flags): its main() in this process, with that model; the parsed log."""

    def run(module, *flags):
        folder = tmp_path / "runs"
        before = set(folder.glob("*.log"))
        module.main([*SMALL, "--data", str(shard), "--log-dir", str(folder), *map(str, flags)])
        (path,) = set(folder.glob("*.log")) - before
        return read_log(path)

    return run


@pytest.fixture(scope="session")
def cuda_log(shard, tmp_path_factory):
    """cuda_log(n): the log of rung or candidate n on a GPU; each runs once, as users run it."""

    @functools.cache
    def run(number: int):
        folder = tmp_path_factory.mktemp("cuda")
        flags = [*ON_CUDA, "--steps", 6, "--data", shard, "--log-dir", folder]
        done = run_script(rung(number), *flags)
        assert done.returncode == 0, done.stderr
        return read_log(next(folder.glob("*.log")))

    return run


# ------------------------------------------ runs of ddp_run.py and fsdp_run.py on several ranks

STEPS = 6
EXACT = ["--dtype", "float32", "--no-compile", "--total-batch", 512, "--steps", STEPS]
TWO = ["--standalone", "--nproc_per_node=2"]
# Runs at(step) on each rank while the learning rate of `step` is computed.
WRAPPER = f"""
import os, signal, torch, ladder.cli
import MODULE as script
from ladder.ranks import RANK
ladder.cli.MODELS["tiny"] = {SMALLER}
CODE
real = script.get_lr
script.get_lr = lambda step, *schedule: at(step) or real(step, *schedule)
script.main()
"""


@pytest.fixture(scope="module")
def script():
    """The script that `job`, `two` and `alone` run; a module of tests may have another."""
    return "ddp_run.py"


@pytest.fixture(scope="module")
def smaller():
    """`tiny` is as small as the text allows, also for the runs that the tests of a module share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MODELS, "tiny", SMALLER)
        yield


def command_line(shard, folder, *flags, exact=EXACT):
    """The flags of a run whose log and checkpoints go into `folder`."""
    paths = ["--data", shard, "--log-dir", folder / "runs", f"--ckpt-dir={folder / 'ckpt'}"]
    return [str(word) for word in (*SMALL, *paths, *exact, *flags)]


@pytest.fixture(scope="module")
def job(shard, smaller, script):
    """job(folder, *flags, code): start torchrun with the script in WRAPPER around `code`."""

    def start(folder, *flags, code="def at(step): pass", torchrun=TWO, exact=EXACT):
        text = WRAPPER.replace("MODULE", Path(script).stem).replace("CODE", code)
        wrapper = folder / "wrapper.py"
        wrapper.write_text(text)
        words = ["-m", "torch.distributed.run", *torchrun, wrapper]
        return subprocess.Popen(
            [sys.executable, *words, *command_line(shard, folder, *flags, exact=exact)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def finish(process, status=0):
    """Wait until it ends with `status` (None: with any). Returns its stdout and stderr."""
    try:
        out, err = process.communicate(timeout=900)
    finally:
        process.terminate()  # torchrun ends its ranks then
    assert status in (process.returncode, None), out + err
    return out, err


@pytest.fixture(scope="module")
def two(job, tmp_path_factory):
    """The folder of an undisturbed run on two ranks, with a checkpoint after each three steps."""
    folder = tmp_path_factory.mktemp("two")
    finish(job(folder, "--ckpt-every", 3))
    return folder


@pytest.fixture(scope="module")
def one(shard, smaller, tmp_path_factory):
    """The folder of the same run of ddp_run.py in this process, without torchrun."""
    folder = tmp_path_factory.mktemp("one")
    load(ROOT / "ddp_run.py").main(command_line(shard, folder, "--ckpt-every", 3))
    return folder


@pytest.fixture
def alone(shard, smaller, script, tmp_path, capsys):
    """alone(*flags, at, module): main() in this process, with at(step) as in WRAPPER.

    Returns its status, stdout and stderr. `module` is the script by default.
    """

    def run(*flags, at=lambda step: None, exact=EXACT, module=None):
        module = module or load(ROOT / script)
        real = module.get_lr
        status = 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "get_lr", lambda step, *rest: at(step) or real(step, *rest))
            try:
                module.main(command_line(shard, tmp_path, *flags, exact=exact))
            except SystemExit as end:
                status = end.code
        return status, *capsys.readouterr()

    return run


def same_training(folder, other):
    """Assert that two runs differ by rounding: their losses, held-out losses and norms."""
    assert losses(folder) == pytest.approx(losses(other), abs=5e-6)
    log, expected = last_log(folder), last_log(other)
    assert log.vals[-1]["loss"] == pytest.approx(expected.vals[-1]["loss"], abs=5e-6)
    for step, right in zip(log.steps, expected.steps, strict=True):
        assert step["norm"] == pytest.approx(right["norm"], rel=1e-3)  # before clipping


def last_log(folder):
    return read_log(max((folder / "runs").glob("*.log"), key=os.path.getmtime))


def losses(folder):
    """By step, of all logs in the folder."""
    found = {}
    for path in (folder / "runs").glob("*.log"):
        for step in read_log(path).steps:
            found[step["step"]] = step["loss"]
    return found


def weights(folder):
    """Those of its last checkpoint."""
    return checkpoint.read(folder / "ckpt" / f"step_{STEPS:06d}.pt")["model"]


def code_lines(path: Path) -> list[str]:
    """The lines of a script with its docstring and its blank lines left out."""
    return [line for line in parts_of(path)[1].split("\n") if line.strip()]


def changed_lines(before: list[str], after: list[str]) -> list[str]:
    """The + and - lines between the code_lines of two scripts: how large a change is."""
    diff = list(unified_diff(before, after, n=0, lineterm=""))[2:]
    return [line for line in diff if not line.startswith("@@")]
