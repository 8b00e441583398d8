"""transformers, FP32: their GPT-2, not compiled

What baseline.py trains, by the library that most people would take: its own GPT2LMHeadModel, its
own loss, its default attention, AdamW. No dropout, as in the rungs. The clock, the corpus and the
log are those of the rungs. Run it beside them: ladder climb transformers_fp32 0 10
"""

import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from ladder.batches import Batches
from ladder.cli import BLOCK_SIZE, MODELS, parse_args
from ladder.corpus import load_corpus
from ladder.run import Run

LEARNING_RATE = 3e-4
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
        torch.manual_seed(args.seed)
        # transformers has no block_size; Run needs it to count FLOPs.
        sizes = {**MODELS[args.model], "n_positions": BLOCK_SIZE, "block_size": BLOCK_SIZE}
        config = GPT2Config(**sizes, **NO_DROPOUT, use_cache=False)
        model = GPT2LMHeadModel(config).to(device).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
        corpus = load_corpus(args.data, run.print0)
        batches = Batches(corpus, B, T, seed=args.seed, shuffle=args.shuffle)
        run.header(model, batches)

        for step in range(args.steps):
            synchronize(device)
            start = time.perf_counter()
            x, _ = next(batches)  # (B, T) token ids, on the CPU
            x = x.to(device)
            optimizer.zero_grad()
            loss = model(x, labels=x).loss  # it shifts the labels itself: T - 1 of T are predicted
            loss.backward()
            optimizer.step()
            synchronize(device)
            dt = time.perf_counter() - start  # seconds
            run.log(step, loss=loss.item(), dt=dt, tok_per_s=B * T / dt)
    return run.result


if __name__ == "__main__":
    main()
