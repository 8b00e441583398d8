"""Errors that a user can fix: one line and exit status 2."""

import errno
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from ladder.text import printable


class UsageError(Exception):
    """What was wrong and what to do about it, in one line."""


class Damaged(UsageError):
    """The content of a file was read and is wrong."""


def exit_with(why: object) -> NoReturn:
    """Print one line and exit with status 2: for what is found before there is a run."""
    line = printable(str(why))
    print(f"error {line}", file=sys.stderr)
    tell_torchrun(line)
    raise SystemExit(2)


def tell_torchrun(line: str):
    """Let torchrun's summary name this error: it prints that last, below tracebacks of its own."""
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")  # as PyTorch's ErrorHandler writes it
    if file:
        about = {"py_callstack": line, "timestamp": str(int(time.time()))}
        with suppress(OSError):
            Path(file).write_text(json.dumps({"message": {"message": line, "extraInfo": about}}))


# What errors of PyTorch and its libraries say, as regular expressions, and what a user can do. The
# first match is used. tests/recordings/errors.json has the full texts and their sources.
_CAUSES = {
    # cuBLAS allocates its own memory after PyTorch has taken nearly all, and then does not start.
    "[Cc]an(no|')t allocate memory|not enough memory|out of memory|MemoryError"
    "|CUBLAS_STATUS_ALLOC_FAILED|CUBLAS_STATUS_NOT_INITIALIZED": (
        "out of memory: try a smaller --batch-size (or --seq-len, or --model), with train.py or "
        "fsdp_run.py --recompute, or end what else nvidia-smi shows on this GPU"
    ),
    # gloo's words, then NCCL's, for a process that has ended
    "Connection closed by peer|Connection reset by peer|ncclRemoteError": (
        "another rank has exited: if it failed, its own line says why"
    ),
    "/dev/shm/nccl": (
        "NCCL found no room in /dev/shm: start the container with --shm-size=1g, or set "
        "NCCL_SHM_DISABLE=1, which is slower"
    ),
    "Duplicate GPU detected": (
        "two ranks have the same GPU: start them with torchrun, one for each GPU of this machine, "
        "and with the same CUDA_VISIBLE_DEVICES"
    ),
    "is not defined for option 'gpu-name'": (
        "Triton's ptxas is too old for this GPU: name the one of a newer CUDA toolkit "
        "(TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas), or run a rung below 05, or train.py "
        "--no-compile"
    ),
    "no kernel image is available|invalid device function": (  # CUDA's words, then ROCm's
        "this PyTorch has no code for this GPU: for one older than Turing (V100, P100) pip install "
        "--force-reinstall torch --index-url https://download.pytorch.org/whl/cu126, for others "
        "pip install --upgrade torch"
    ),
    # cuda_utils.c and __triton_launcher are what Triton compiles: the command that failed has them.
    r"InvalidCxxCompiler|Python\.h|Failed to find C compiler|cuda_utils\.c|__triton_launcher": (
        "torch.compile found no working compiler ({}): install gcc, g++ and the Python headers "
        "(apt install g++ python3-dev), or name other compilers with CC and CXX, or run a rung "
        "below 05"
    ),
    "TritonMissing|GPUTooOldForTriton": (
        "torch.compile needs a GPU of compute capability 7.0 (Volta) or newer and Triton (on "
        "Windows pip install triton-windows): run a rung below 05, or train.py --no-compile, "
        "which has what the later rungs add"
    ),
    "No usable temporary directory": (
        "no folder for temporary files can be written: name one in TMPDIR"
    ),
    # As getcwd() says it: of no file.
    "No such file or directory$": "the folder that this was started in is gone: cd to another",
    "^InductorError: ImportError": (
        "what torch.compile's compiler made does not load ({}): the compiler has other libraries "
        "than this Python; name the system's own in CXX, or its libraries in LD_LIBRARY_PATH (on a "
        "Mac brew install libomp), or run a rung below 05"
    ),
    # Inductor could not write, compile or load its generated code. {} is how its error begins.
    "^InductorError: (OSError|PermissionError|FileNotFoundError|CppCompileError|IndexError)": (
        "torch.compile needs a C++ compiler that works, and room in a folder without blanks in its "
        "name where programs may run: name one in TORCHINDUCTOR_CACHE_DIR, for ladder commands in "
        "TMPDIR, or run a rung below 05 ({})"
    ),
}


def explain(raised: BaseException) -> str | None:
    """One line for an error whose cause is known and lies outside the script, else None."""
    for error in chain_of(raised):
        if isinstance(error, UsageError):
            return str(error)
        text = f"{type(error).__name__}: {error}"
        for words, line in _CAUSES.items():
            if re.search(words, text):
                return line.format(text.partition("\n")[0][:200])
        # The disk or a path, of a copy where it goes. A missing file (ENOENT) is a mistake in a
        # script: show its traceback.
        if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT):
            return f"{error.filename2 or error.filename or 'the system'}: {error.strerror}"
    return None


def chain_of(error: BaseException | None) -> Iterator[BaseException]:
    """An error, the one that it was raised for, and so on: torch.compile wraps its backend's."""
    while error is not None:
        yield error
        error = error.__cause__ or getattr(error, "inner_exception", None) or error.__context__
