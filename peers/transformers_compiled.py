"""transformers, compiled: their GPT-2, trained the usual fast way

bfloat16 autocast (float16 and a scaler on a GPU without its units), scaled_dot_product_attention,
torch.compile, fused AdamW and gradients clipped at 1.0, around their GPT2LMHeadModel and its own
loss. glibc keeps memory, as in rung 11. No dropout, as in the rungs. The clock, the corpus and the
log are those of the rungs. Run it beside them: ladder climb transformers 0 10
"""

import ctypes
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from ladder.batches import Batches
from ladder.cli import BLOCK_SIZE, MODELS, parse_args
from ladder.corpus import load_corpus
from ladder.machine import half_precision
from ladder.run import Run

LEARNING_RATE = 6e-4
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}


def synchronize(device):
    """Wait until the GPU is idle: kernels are queued, so otherwise the clock times their launch."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def main(argv=None):
    """Train for --steps steps and return the RESULT as a dict."""
    args = parse_args(__doc__, argv)
    B, T, device = args.batch_size, args.seq_len, args.device
    with Run(__file__, args) as run:  # writes the log; its end prints RESULT
        libc = ctypes.CDLL(None)
        if hasattr(libc, "mallopt"):  # no page faults for tensors that come anew each step
            libc.mallopt(M_MMAP_THRESHOLD, 2**30)
            libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        torch.manual_seed(args.seed)
        dtype = half_precision(device)
        torch.set_float32_matmul_precision("high")
        # transformers has no block_size; Run needs it to count FLOPs.
        sizes = {**MODELS[args.model], "n_positions": BLOCK_SIZE, "block_size": BLOCK_SIZE}
        config = GPT2Config(**sizes, **NO_DROPOUT, use_cache=False, attn_implementation="sdpa")
        model = GPT2LMHeadModel(config).to(device).train()
        model = torch.compile(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)
        scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)
        corpus = load_corpus(args.data, run.print0)
        batches = Batches(corpus, B, T, seed=args.seed, shuffle=args.shuffle)
        run.header(model, batches, dtype=dtype, scaler=scaler)  # for the log

        for step in range(args.steps):
            synchronize(device)
            start = time.perf_counter()
            x, _ = next(batches)  # (B, T) token ids, on the CPU
            x = x.to(device)
            optimizer.zero_grad()
            with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
                loss = model(x, labels=x).loss  # it shifts the labels: T - 1 of T are predicted
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            synchronize(device)
            dt = time.perf_counter() - start  # seconds
            run.log(step, loss=loss.item(), dt=dt, tok_per_s=B * T / dt)
    return run.result


if __name__ == "__main__":
    main()
