"""Errors a user can put right, told in one line with exit status 2."""

import torch


class BadInput(Exception):
    """What was wrong and what to do about it, in one line."""


# How torch words a failed allocation on devices whose failure has no class of its own.
_ALLOCATION_FAILED = ("can't allocate memory", "out of memory")
# Class names in torch._inductor.exc; by name, so that no private class need be imported.
_NO_COMPILER = {"InvalidCxxCompiler", "CppCompileError", "CppWrapperCodegenError"}
_NO_TRITON = {"TritonMissing"}


def explain(error: BaseException) -> str | None:
    """One line for an error whose cause is known and lies outside the script, else None.

    Looks through the whole chain of causes, because torch.compile wraps what its backend raised.
    """
    while error is not None:
        name, text = type(error).__name__, str(error)
        if isinstance(error, BadInput):
            return text
        if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or (
            isinstance(error, RuntimeError) and any(words in text for words in _ALLOCATION_FAILED)
        ):
            return "out of memory: try a smaller --batch-size (or --seq-len, or --model)"
        if name in _NO_COMPILER:
            return (
                "torch.compile found no working C++ compiler: install g++ or clang++ and the "
                "Python headers (or name a compiler with CXX), or run a rung below 05"
            )
        if name in _NO_TRITON:
            return "torch.compile needs Triton on a GPU: pip install triton, or run a rung below 05"
        error = error.__cause__ or getattr(error, "inner_exception", None) or error.__context__
    return None
