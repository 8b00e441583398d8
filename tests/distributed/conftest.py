"""Fixtures that start ddp_run.py, train.py or fsdp_run.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import load
from jobs import EXACT, TWO, WRAPPER, command_line, finish

from ladder.checkout import ROOT


@pytest.fixture(scope="module")
def script():
    """The script that `job`, `two` and `alone` run; a module of tests may have another."""
    return "train.py"


@pytest.fixture(scope="module")
def job(shard, smaller, script):
    """job(folder, *flags, code): start torchrun with the script in WRAPPER around `code`.

    `words` replace all flags.
    """

    def start(folder, *flags, code="def at(step): pass", torchrun=TWO, exact=EXACT, words=None):
        text = WRAPPER.replace("MODULE", Path(script).stem).replace("CODE", code)
        wrapper = folder / "wrapper.py"
        wrapper.write_text(text)
        words = words or command_line(shard, folder, *flags, exact=exact)
        return subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *torchrun, wrapper, *words],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.fixture(scope="module")
def two(job, tmp_path_factory):
    """The folder of an undisturbed run on two ranks, with a checkpoint after each three steps."""
    folder = tmp_path_factory.mktemp("two")
    finish(job(folder, "--ckpt-every", 3))
    return folder


@pytest.fixture(scope="module")
def one(shard, smaller, tmp_path_factory):
    """The folder of the same run of train.py in this process, without torchrun."""
    folder = tmp_path_factory.mktemp("one")
    load(ROOT / "train.py").main(command_line(shard, folder, "--ckpt-every", 3))
    return folder


@pytest.fixture
def alone(shard, smaller, script, tmp_path, capsys):
    """alone(*flags, at, status): main() in this process, with at(step) as in WRAPPER.

    Asserts that it ends with this status. Returns stdout and stderr. `module` is the script by
    default.
    """

    def run(*flags, at=lambda step: None, status=0, exact=EXACT, module=None):
        module = module or load(ROOT / script)
        real = module.get_lr
        ended = 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "get_lr", lambda step, *rest: at(step) or real(step, *rest))
            try:
                module.main(command_line(shard, tmp_path, *flags, exact=exact))
            except SystemExit as end:
                ended = end.code
        out, err = capsys.readouterr()
        assert ended == status, out + err
        return out, err

    return run
