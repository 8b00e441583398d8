"""GCC 11 and 12 compile a kernel wrongly that torch.compile writes for a CPU with AVX-512.

    TORCHINDUCTOR_CPP_MARCH="native -mtune=generic" python tests/gcc_transpose.py

prints how many values of two transposed copies of bfloat16 in one kernel are wrong: 15773 and 7889
of 16384 and 8192 with g++ 12.2 and torch 2.13, none with `-fno-tree-slp-vectorize` after `generic`,
with TORCHINDUCTOR_CPP_MARCH=skylake-avx512, with CXX=clang++ or with ATEN_CPU_CAPABILITY=avx2.
One such copy in a kernel is right. PyTorch passes `-march=native`, and GCC then tunes for the CPU
that it finds: of those tried (haswell, skylake-avx512, rocketlake, sapphirerapids, znver3, intel)
it is right for all, and wrong for `generic`, which it takes where it does not know the CPU's model.
That is how candidates 15 and up got `loss nan` at --model tiny on an Intel Xeon.
"""

import torch

from ladder.commands.doctor import transposed

if __name__ == "__main__":
    x = torch.arange(2 * 128 * 64).view(2, 128, 64).bfloat16()
    for right, found in zip(transposed(x), torch.compile(transposed)(x), strict=True):
        print(f"{(found != right).sum()} of {right.numel()} are wrong")
