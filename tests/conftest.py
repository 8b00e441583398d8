"""Fixtures that many tests use: a small real text, a small model, GPUs that are not here."""

import functools
import os
import signal
from pathlib import Path
from types import SimpleNamespace

# Before torch: two tests at a time have a core each, and so have the processes they start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from helpers import CARDS, ON_CUDA, SMALL, SMALLER, run_script, rung, write_shard

from ladder.cli import MODELS
from ladder.corpus import gpt2_vocabulary, load_corpus
from ladder.errors import UsageError
from ladder.log import read_log

pytest.register_assert_rewrite("jobs", "models", "rungs")

# Ignored under nohup, or behind `&` in a script: the tests' signals would do nothing.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("cuda") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="no CUDA GPU here"))


@pytest.fixture(scope="session")
def shard(tmp_path_factory) -> Path:
    """Shakespeare's tokens, folded into a vocabulary of 256: the same on every machine."""
    tokens = load_corpus(None, print).read(0, 100_000)
    path = tmp_path_factory.mktemp("corpus") / "folded.bin"
    write_shard(path, tokens % 256)
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


@pytest.fixture(scope="session")
def vocabulary():
    """tiktoken's GPT-2 encoding; a test is skipped where there is none."""
    try:
        return gpt2_vocabulary()
    except UsageError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def smaller():
    """`tiny` is as small as the text allows, for the runs that the tests of a module share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MODELS, "tiny", SMALLER)
        yield


@pytest.fixture
def run_main(shard, tmp_path, monkeypatch):
    """run_main(module, *flags): its main() in this process, with that model; the parsed log."""

    monkeypatch.setitem(MODELS, "tiny", SMALLER)

    def run(module, *flags):
        folder = tmp_path / "runs"
        before = set(folder.glob("*.log"))
        module.main([*SMALL, "--data", str(shard), "--log-dir", str(folder), *map(str, flags)])
        (path,) = set(folder.glob("*.log")) - before
        return read_log(path)

    return run


@pytest.fixture
def card(monkeypatch):
    """card(name): from now on PyTorch sees this GPU of CARDS, and no other. Returns its device.

    Nothing can be computed on it.
    """

    def see(name: str) -> torch.device:
        kind, full_name, memory, chip = CARDS[name]
        device = torch.device(kind)
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: device)
        if kind == "mps":
            monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
            return device
        amd = isinstance(chip, str)
        major, minor = (9, 4) if amd else chip  # HIP says so of gfx942
        gpu = SimpleNamespace(
            total_memory=int(memory), uuid="0-0", major=major, minor=minor, gcnArchName=chip
        )
        answers = {
            "is_available": True,
            "device_count": 1,
            "get_device_name": full_name,
            "get_device_properties": gpu,
            "max_memory_allocated": 0,
            "is_bf16_supported": True,  # which counts emulation, and all of AMD's
        }
        for function, answer in answers.items():
            monkeypatch.setattr(torch.cuda, function, lambda *_, a=answer: a)
        monkeypatch.setattr(torch.version, "hip", "7.2" if amd else None)
        return device

    return see


@pytest.fixture(scope="session")
def cuda_log(shard, tmp_path_factory):
    """cuda_log(n): the log of rung n on a GPU; each runs once, as users run it."""

    @functools.cache
    def run(number: int):
        folder = tmp_path_factory.mktemp("cuda")
        flags = [*ON_CUDA, "--steps", 6, "--data", shard, "--log-dir", folder]
        done = run_script(rung(number), *flags)
        assert done.returncode == 0, done.stderr
        return read_log(next(folder.glob("*.log")))

    return run
