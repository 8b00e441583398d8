"""Errors that a user can fix: one line and exit status 2."""

import errno
import re
import sys
from typing import NoReturn

from ladder.text import printable


class UsageError(Exception):
    """What was wrong and what to do about it, in one line."""


def exit_with(why: object) -> NoReturn:
    """Print one line and exit with status 2: for what is found before there is a run."""
    print(f"error {printable(str(why))}", file=sys.stderr)
    raise SystemExit(2)


# What errors of PyTorch and its libraries say, as regular expressions, and what a user can do. The
# first match is used. tests/recordings/errors.json has the full texts and their sources.
_CAUSES = {
    # cuBLAS allocates its own memory after PyTorch has taken nearly all, and then does not start.
    "can't allocate memory|not enough memory|out of memory|MemoryError|CUBLAS_STATUS_ALLOC_FAILED"
    "|CUBLAS_STATUS_NOT_INITIALIZED": (
        "out of memory: try a smaller --batch-size (or --seq-len, or --model)"
    ),
    # gloo's words, then NCCL's, for a process that has ended
    "Connection closed by peer|Connection reset by peer|ncclRemoteError": (
        "another rank has exited: if it failed, its own line says why"
    ),
    "no kernel image is available|invalid device function": (  # CUDA's words, then ROCm's
        "this PyTorch has no code for this GPU: for one older than Turing (V100, P100) pip install "
        "torch --index-url https://download.pytorch.org/whl/cu126, for others the newest PyTorch"
    ),
    # cuda_utils.c and __triton_launcher are what Triton compiles: the command that failed has them.
    r"InvalidCxxCompiler|Python\.h|Failed to find C compiler|cuda_utils\.c|__triton_launcher": (
        "torch.compile found no working compiler: install gcc, g++ and the Python headers (apt "
        "install g++ python3-dev), or name other compilers with CC and CXX, or run a rung below 05"
    ),
    "TritonMissing|GPUTooOldForTriton": (
        "torch.compile needs a GPU of compute capability 7.0 (Volta) or newer and Triton (on "
        "Windows pip install triton-windows): run a rung below 05, or ddp_run.py --no-compile, "
        "which has what the later rungs add"
    ),
    # Inductor could not write, compile or load its generated code. {} is how its error begins.
    "^InductorError: (OSError|PermissionError|FileNotFoundError|CppCompileError|IndexError)": (
        "torch.compile failed ({}): it needs a C++ compiler that works, and room in a cache folder "
        "without blanks in its name (TORCHINDUCTOR_CACHE_DIR) where programs may run; rungs below "
        "05 need neither"
    ),
}


def explain(error: BaseException) -> str | None:
    """One line for an error whose cause is known and lies outside the script, else None.

    Looks through the whole chain of causes, because torch.compile wraps what its backend raised.
    """
    while error is not None:
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
        error = error.__cause__ or getattr(error, "inner_exception", None) or error.__context__
    return None
