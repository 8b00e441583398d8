"""Errors a user can put right, told in one line with exit status 2."""


class BadInput(Exception):
    """What was wrong and what to do about it, in one line."""


# How torch words a failed allocation where it has no class of its own.
_NO_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)
# How gloo words it when a process that it waits for has ended.
_NO_PEER = ("Connection closed by peer", "Connection reset by peer")
# How torch.compile words it when there is no compiler, or no headers for it.
_NO_COMPILER = ("InvalidCxxCompiler", "Python.h")


def explain(error: BaseException) -> str | None:
    """One line for an error whose cause is known and lies outside the script, else None.

    Looks through the whole chain of causes, because torch.compile wraps what its backend raised.
    """
    while error is not None:
        if isinstance(error, BadInput):
            return str(error)
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, MemoryError) or any(words in text for words in _NO_MEMORY):
            return "out of memory: try a smaller --batch-size (or --seq-len, or --model)"
        if any(words in text for words in _NO_PEER):
            return "another rank is gone: if it failed, its own line says why"
        if any(words in text for words in _NO_COMPILER):
            return (
                "torch.compile found no working C++ compiler: install g++ or clang++ and the "
                "Python headers (or name a compiler with CXX), or run a rung below 05"
            )
        if "Failed to find C compiler" in text:  # Triton's words
            return (
                "Triton found no C compiler: install gcc or clang and the Python headers (or name "
                "a compiler with CC), or run a rung below 05"
            )
        if "TritonMissing" in text:
            return "torch.compile needs Triton on a GPU: pip install triton, or run a rung below 05"
        error = error.__cause__ or getattr(error, "inner_exception", None) or error.__context__
    return None
