"""How many sequences, B, fit a GPU: the bytes that the baseline and train.py need.

A step needs most memory when the loss is computed. `size` is one of cli.MODELS.
"""

RESERVE = 2e9  # bytes of a GPU for CUDA (half a gigabyte) and a desktop


def default_batch(memory: float, size: dict, T: int) -> int:
    """B where none is given: the largest, at most 16, at which the baseline fits a GPU."""
    return max(1, min(16, baseline_batch(memory, size, T)))


def memory_on_sale(gib: float) -> float:
    """Bytes that a driver reports of a card sold with this many GiB: about 97 %."""
    return 0.97 * gib * 2**30


def baseline_batch(memory: float, size: dict, T: int) -> int:
    """The largest power of two, B, at which the baseline fits in `memory` bytes, or 0.

    With GPT-2 124M and medium no rung needs more.
    """
    L = size["n_layer"]
    C = size["n_embd"]
    V = 50257
    fixed = 12 * parameters(L, C, 2 * V)  # FP32 weights and AdamW's two moments
    per_layer = 64 * C + 4 * size["n_head"] * T  # bytes a token: activations and FP32 scores
    # Embeddings and last LayerNorm; log-probabilities, their gradient and that of the logits.
    per_token = L * per_layer + 10 * C + 12 * V
    return power_of_two_that_fits(memory, fixed, T * per_token)


def train_batch(
    memory: float, size: dict, T: int, shards: int | None = None, recompute: bool = False
) -> int:
    """The same for train.py, compiled and in half precision, as it is or with --recompute.

    For fsdp_run.py `shards` is the number of ranks that share weights, gradients and moments.
    """
    L = size["n_layer"]
    C = size["n_embd"]
    V = 50304
    # Bytes: 4 weight, 4 gradient (kept; of several ranks it is a view of DDP's buckets), 8 AdamW's
    # moments, 2 in half precision.
    P = parameters(L, C, V)
    fixed = 18 * P
    if shards:  # the first three; of the token embedding every rank has all but the moments too
        fixed = 16 * P / shards + 14 * V * C
    # Bytes a token: activations, embeddings and last LayerNorm, and in half precision the logits
    # and their gradient; with --recompute the inputs of blocks, and an eighth of the logits three
    # times in FP32: one block computed again takes less.
    per_token = L * 36 * C + 10 * C + 4 * V
    if recompute:
        per_token = L * 4 * C + 10 * C + 12 * V / 8
    return power_of_two_that_fits(memory, fixed, T * per_token)


def parameters(L: int, C: int, tokens: int) -> int:
    """Parameters of a GPT-2 with `tokens` rows in its token embedding and, if untied, its head."""
    return (tokens + 1024) * C + L * (12 * C * C + 13 * C) + 2 * C  # 1024 positions


def power_of_two_that_fits(memory: float, fixed: float, per_row: float) -> int:
    """The largest power of two, B, for which fixed + B · per_row bytes fit a GPU, or 0."""
    usable = (memory - RESERVE) * 8 / 9  # an eighth is for fragmentation of PyTorch's allocator
    B = 1
    while fixed + B * per_row <= usable:
        B *= 2
    return B // 2
