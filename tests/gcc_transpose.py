"""A report to file: GCC 11 and 12 miscompile what torch.compile writes for a CPU with AVX-512.

No report of it was found, neither at PyTorch nor at GCC.

Steps, on a CPU with AVX-512, g++ 11 or 12.2 (Debian 12), torch 2.13 or 2.15:

    TORCHINDUCTOR_CPP_MARCH="native -mtune=generic" python tests/gcc_transpose.py

Expected: 0 of two transposed copies of bfloat16, made in one kernel, are wrong.
Actual (g++ 12.2, torch 2.13): 15773 of 16384 and 7889 of 8192. One copy in a kernel is right.
Right as well: CXX=clang++ (14), TORCHINDUCTOR_CPP_MARCH=skylake-avx512,
ATEN_CPU_CAPABILITY=avx2, torch._inductor.config.cpp.simdlen=256, g++ -O2.

PyTorch passes `-march=native`, and GCC then tunes for the CPU that it finds. It is right for those
tried (haswell, skylake-avx512, rocketlake, sapphirerapids, znver3, intel) and wrong for `generic`,
which it takes where it does not know the CPU's model.

Why, by g++ 12.2's assembly: transpose_mxn<BFloat16> (ATen/cpu/vec/vec512/vec512_bfloat16.h) ends in
a loop that stores d[32] to dst. At -O3 it becomes a memcpy of 2048 bytes, which generic tuning
expands to `rep movsq`. Dead store elimination then deletes the stores to d that it reads: of 64
permutations 6 are left, and all but 8 bytes and d[31] is what was on the stack. All 64 are there
with any one of -fno-dse, -fno-tree-loop-distribute-patterns, -fno-tree-slp-vectorize (which was run
too, and is right) and -mmemcpy-strategy=libcall:-1:noalign.

Here it was `loss nan` at --model tiny in candidates that had rung 12's attention, until
`causal_blocks` made one copy of its keys that needs no transposing.
"""

import torch


def transposed(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.transpose(1, 2).contiguous(), x[:, :64].transpose(1, 2).contiguous()


if __name__ == "__main__":
    x = torch.arange(2 * 128 * 64).view(2, 128, 64).bfloat16()
    for right, found in zip(transposed(x), torch.compile(transposed)(x), strict=True):
        print(f"{(found != right).sum()} of {right.numel()} are wrong")
