"""GPT-2 (124M), trained with:

00 baseline: plain PyTorch in FP32
01 weight tying: the token embedding and the output head share one matrix
02 TF32: FP32 matmuls round their operands to TF32, which tensor cores multiply

Why each helps, and what it does to the numbers: README.md of its folder, or `ladder diff N`.
"""

import math
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F

from ladder.batches import Batches
from ladder.cli import MODELS, parse_args
from ladder.corpus import load_corpus
from ladder.run import Run

LEARNING_RATE = 3e-4


# ------------------------------------------------------------------------------ model


@dataclass
class GPTConfig:
    block_size: int = 1024  # longest sequence
    vocab_size: int = 50257  # 50,000 BPE merges + 256 bytes + <|endoftext|>
    n_layer: int = 12  # 124M parameters; --model sets other sizes
    n_head: int = 12
    n_embd: int = 768


class CausalSelfAttention(nn.Module):
    """Each position looks at itself and those before it: (B, T, C) -> (B, T, C)."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.n_head = config.n_head
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)  # q, k and v of all heads
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        mask = torch.ones(config.block_size, config.block_size, dtype=torch.bool).triu(1)
        self.register_buffer("mask", mask, persistent=False)  # causal: True above the diagonal

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.c_attn(x).split(C, dim=2)  # each (B, T, C)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)  # (B, nh, T, hs)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = q @ k.transpose(-2, -1) / math.sqrt(C // self.n_head)  # (B, nh, T, T)
        att = att.masked_fill(self.mask[:T, :T], float("-inf"))
        y = F.softmax(att, dim=-1) @ v  # (B, nh, T, hs)
        y = y.transpose(1, 2).reshape(B, T, C)  # heads side by side again
        return self.c_proj(y)


class MLP(nn.Module):
    """Four times wider, GELU, and back: (B, T, C) -> (B, T, C)."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    """Attention and MLP, each on a normalised copy and added to the residual stream."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd)
        self.mlp = MLP(config)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """GPT-2 with the parameter names of transformers' GPT2LMHeadModel, in nn.Linear's layout."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.config = config
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.vocab_size, config.n_embd),
                "wpe": nn.Embedding(config.block_size, config.n_embd),
                "h": nn.ModuleList(Block(config) for _ in range(config.n_layer)),
                "ln_f": nn.LayerNorm(config.n_embd),
            }
        )
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.lm_head.weight = self.transformer.wte.weight  # speedup 01: one matrix, two uses
        self.apply(self._init_weights)

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, idx, targets=None):
        """idx, targets: (B, T) token ids -> mean loss; without targets logits (B, T, V)."""
        positions = torch.arange(idx.size(1), device=idx.device)
        x = self.transformer.wte(idx) + self.transformer.wpe(positions)  # (B, T, C)
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.transformer.ln_f(x))
        if targets is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


# --------------------------------------------------------------------------- training


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
        torch.set_float32_matmul_precision("high")  # speedup 02: matmuls on TF32 tensor cores
        model = GPT(GPTConfig(**MODELS[args.model])).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
        corpus = load_corpus(args.data, run.print0)
        batches = Batches(corpus, B, T, seed=args.seed, shuffle=args.shuffle)
        run.header(model, batches)

        for step in range(args.steps):
            synchronize(device)
            start = time.perf_counter()
            x, y = next(batches)  # (B, T) token ids each, on the CPU
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = model(x, y)
            loss.backward()
            optimizer.step()
            synchronize(device)
            dt = time.perf_counter() - start  # seconds
            run.log(step, loss=loss.item(), dt=dt, tok_per_s=B * T / dt)
    return run.result


if __name__ == "__main__":
    main()
