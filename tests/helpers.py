"""What many tests use: scripts, run as users run them, and small helpers."""

import importlib.util
import os
import subprocess
import sys
from difflib import unified_diff
from pathlib import Path

import pytest
import torch

from ladder import machine
from ladder.checkout import ROOT
from ladder.cli import MODELS
from ladder.commands.main import main
from ladder.measure.scripts import all_scripts, number_of

SMALL = ["--model", "tiny", "--batch-size", "2", "--seq-len", "64", "--device", "cpu"]
# cuDNN below 9.15.1 may read out of bounds where 128 does not divide T (pytorch issue 169849).
ON_CUDA = ["--model", "tiny", "--batch-size", "2", "--seq-len", "128", "--device", "cuda"]
TINY = dict(MODELS["tiny"])
SMALLER = dict(n_layer=2, n_head=2, n_embd=64, vocab_size=256)  # a step takes 0.1 s, not 2 s
SCRIPTS = {number_of(path): path for path in all_scripts()}
HALF = str(machine.half_precision(torch.device("cpu"))).removeprefix("torch.")
AUTOCAST = "off" if HALF == "float32" else HALF  # what a rung from 03 on logs on this CPU


def load(path: Path):
    """Import a script by its path (a rung's name is no identifier)."""
    spec = importlib.util.spec_from_file_location(f"script_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


write_shard = load(ROOT / "data" / "prepare.py").write_shard


def rung(number: int) -> Path:
    """The path of rung `number`."""
    return SCRIPTS[number]


def with_mistake(script: Path, right: str, wrong: str, path: Path) -> Path:
    """Write a rung with a mistake in its code to `path`: `wrong` for `right`."""
    source = script.read_text()
    times = source.count(right)
    assert times == 1, (
        f"{script.name} must have the text to break once, has it {times} times: {right}"
    )
    path.write_text(source.replace(right, wrong))
    return path


def lines_of(path: Path) -> list[str]:
    """The lines of a script, blank ones left out."""
    return [line for line in path.read_text().split("\n") if line.strip()]


def changed_lines(before: list[str], after: list[str]) -> list[str]:
    """The + and - lines between the lines_of two scripts: how large a change is."""
    diff = list(unified_diff(before, after, n=0, lineterm=""))[2:]
    return [line for line in diff if not line.startswith("@@")]


def random_batch(B=2, T=48, V=50257):
    """Inputs and targets of B rows, the same at each call."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, V, (B, T + 1), generator=generator)
    return ids[:, :-1], ids[:, 1:]


def relative_error(value, exact) -> float:
    """|value - exact| / |exact|, of two tensors."""
    error = value.float() - exact.float()
    return (error.norm() / exact.float().norm()).item()


def fails(capsys, *flags) -> str:
    """Run the baseline's main() with flags that make no sense; its one line on stderr."""
    with pytest.raises(SystemExit, match="2"):
        load(rung(0)).main([str(flag) for flag in flags])
    (line,) = capsys.readouterr().err.splitlines()
    return line


def refused(capsys, *words) -> str:
    """Run the `ladder` command with words that it refuses; its one line on stderr."""
    assert main([str(word) for word in words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


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


# What PyTorch says of a GPU: kind, name, bytes, and what tells its architecture.
CARDS = {
    "P100": ("cuda", "Tesla P100-PCIE-16GB", 17.1e9, (6, 0)),
    "T4": ("cuda", "Tesla T4", 15.6e9, (7, 5)),
    "RTX 3060 12GB": ("cuda", "NVIDIA GeForce RTX 3060", 12.6e9, (8, 6)),
    "RTX 4090": ("cuda", "NVIDIA GeForce RTX 4090", 25.3e9, (8, 9)),
    "H100": ("cuda", "NVIDIA H100 80GB HBM3", 85e9, (9, 0)),
    "MI50": ("cuda", "AMD Instinct MI50", 17.2e9, "gfx906:sramecc+:xnack-"),
    "MI300X": ("cuda", "AMD Instinct MI300X", 205.8e9, "gfx942:sramecc+:xnack-"),
    "M3": ("mps", "Apple M3 GPU", 11.5e9, (0, 0)),
}
