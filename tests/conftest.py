"""Shared by the tests: a small real text as a shard, and scripts run as users run them."""

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path
from pydoc_data.topics import topics

# Before torch: two tests at a time have a core each, and so have the processes they start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
import torch

from ladder.commands.scripts import ROOT, all_scripts
from ladder.log import read_log
from ladder.shards import write_shard

SMALL = ["--model", "tiny", "--batch-size", "2", "--seq-len", "64", "--device", "cpu"]


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("cuda") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="no CUDA GPU here"))
        if item.get_closest_marker("real_corpus") and "LADDER_DATA" not in os.environ:
            item.add_marker(pytest.mark.skip(reason="LADDER_DATA is not set"))


def load(path: Path):
    """Import a script by its path (a rung's name is no identifier)."""
    spec = importlib.util.spec_from_file_location(f"script_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rung(number: int) -> Path:
    """The path of rung `number`."""
    return all_scripts()[number]


@pytest.fixture(scope="session")
def shard(tmp_path_factory) -> Path:
    """Python's own documentation, one token per byte: real text that every machine has."""
    text = "\n\n".join(topics[key] for key in sorted(topics)).encode()[:100_000]
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


def hear_ctrl_c():
    """For `preexec_fn`: shells start background jobs with SIGINT ignored, and children inherit."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run_script(path, *flags, env=None, **options):
    """Run a script in a process of its own and return the finished process."""
    return subprocess.run(
        [sys.executable, path, *map(str, flags)],
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=900,
        **options,
    )


@pytest.fixture
def run_main(shard, tmp_path):
    """run_main(module, *flags): its main() in this process on the small text; the parsed log."""

    def run(module, *flags):
        folder = tmp_path / "runs"
        before = set(folder.glob("*.log"))
        module.main([*SMALL, "--data", str(shard), "--log-dir", str(folder), *map(str, flags)])
        (path,) = set(folder.glob("*.log")) - before
        return read_log(path)

    return run
