"""GPT-2 (124M), trained with:

00 baseline: plain PyTorch in FP32
01 weight tying: the token embedding and the output head share one matrix
02 TF32: FP32 matmuls round their operands to TF32, which tensor cores multiply
03 bf16 autocast: matmuls take and give bfloat16, or float16 with a gradient scaler
04 residual scaling: projections into the residual stream start with smaller weights
05 torch.compile: neighbouring operators become one kernel and skip the way through memory
06 flash attention: scores, mask and softmax in one kernel; no (T, T) matrix in memory
07 vocab 50304: a multiple of 128, so that rows of logits are aligned for tensor cores
08 AdamW and clipping: GPT-3's betas and weight decay; gradients clipped to a norm of 1.0
09 cosine LR: the learning rate warms up, then falls along a cosine
10 fused AdamW: one pass over weights, gradients and moments updates all parameters
DDP: a process for each GPU trains on rows of its own, and gradients are averaged between them

Why each helps, and what it does to the numbers: README.md of its folder, or `ladder diff N`.
"""

import math
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from ladder import distributed
from ladder.batches import Batches
from ladder.cli import MODELS, parse_args
from ladder.corpus import load_corpus
from ladder.machine import half_precision
from ladder.run import Run

MAX_LR = 6e-4  # speedup 09: at the end of the warm-up
MIN_LR = MAX_LR / 10  # at the last step
# ddp: torchrun starts a process for each GPU, a rank, and tells it
RANK = distributed.from_torchrun("RANK")  # which of all ranks this is
LOCAL_RANK = distributed.from_torchrun("LOCAL_RANK")  # which of those on this machine
WORLD_SIZE = distributed.from_torchrun("WORLD_SIZE")  # how many there are


# ------------------------------------------------------------------------------ model


@dataclass
class GPTConfig:
    block_size: int = 1024  # longest sequence
    vocab_size: int = 50304  # speedup 07: 50257 padded to a multiple of 128, which tiles fit
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

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.c_attn(x).split(C, dim=2)  # each (B, T, C)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)  # (B, nh, T, hs)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        # speedup 06: scale, scores, mask, softmax, values in one kernel; no (T, T) in memory
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, nh, T, hs)
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
        for name, p in self.named_parameters():
            if name.endswith("c_proj.weight"):  # speedup 04: added 2 * n_layer times
                nn.init.normal_(p, mean=0.0, std=0.02 / math.sqrt(2 * config.n_layer))

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


def get_lr(step, steps):
    """Learning rate of `step` (from 0) in a run of `steps`."""
    warmup = max(1, steps // 5)
    if step < warmup:
        return MAX_LR * (step + 1) / warmup
    progress = (step + 1 - warmup) / (steps - warmup)  # 1 at the last step
    return MIN_LR + (MAX_LR - MIN_LR) * 0.5 * (1 + math.cos(math.pi * progress))


def synchronize(device):
    """Wait until the GPU is idle: kernels are queued, so otherwise the clock times their launch."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


@distributed.clean_exit()  # ddp: ends the process group; a rank that fails keeps its status
def main(argv=None):
    """Train for --steps steps and return the RESULT as a dict."""
    distributed.require_torchrun(__file__)
    # ddp: ranks meet, and wait for each other
    dist.init_process_group(distributed.backend())
    # ddp: rank 0 reads the command line for all: one B, and a mistake is told once
    args = distributed.on_rank_0(parse_args, __doc__, argv)
    if args.device.type == "cuda":
        args.device = torch.device("cuda", LOCAL_RANK)  # ddp: its own GPU; Run selects it
    B, T, device = args.batch_size, args.seq_len, args.device
    with Run(__file__, args, RANK, WORLD_SIZE) as run:  # ddp: rank 0 writes the log
        torch.manual_seed(args.seed)
        dtype = half_precision(device)  # speedup 03: bfloat16, if the device multiplies that
        autocast = torch.autocast(device.type, dtype, enabled=dtype != torch.float32)
        torch.set_float32_matmul_precision("high")  # speedup 02: matmuls on TF32 tensor cores
        model = GPT(GPTConfig(**MODELS[args.model])).to(device)
        # ddp: backward averages gradients over the ranks, and sends some as it computes others
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
        model = torch.compile(model)  # speedup 05: fuses the elementwise chains between matmuls
        # speedup 08: decay 2-D parameters (matrices, embeddings), not biases and LayerNorms
        decay = [p for p in model.parameters() if p.dim() >= 2]
        no_decay = [p for p in model.parameters() if p.dim() < 2]
        groups = [
            {"params": decay, "weight_decay": 0.1},
            {"params": no_decay, "weight_decay": 0.0},
        ]
        # speedup 10: fused, one pass over weights, gradients and moments
        optimizer = torch.optim.AdamW(groups, lr=MAX_LR, betas=(0.9, 0.95), eps=1e-8, fused=True)
        scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)
        corpus = load_corpus(args.data, run.print0)
        # ddp: of WORLD_SIZE * B rows a step each rank takes B
        batches = Batches(corpus, B, T, RANK, WORLD_SIZE, args.shuffle, args.seed)
        run.header(model, batches, dtype=dtype, scaler=scaler)  # speedup 03: for the log

        for step in range(args.steps):
            synchronize(device)
            start = time.perf_counter()
            x, y = next(batches)  # (B, T) token ids each, on the CPU
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            with autocast:  # speedup 03: half precision; off where dtype is float32
                loss = model(x, y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)  # speedup 08: undo the loss scale before clipping
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # speedup 08: the norm
            lr = get_lr(step, args.steps)  # speedup 09: warm-up, then decay
            for group in optimizer.param_groups:
                group["lr"] = lr
            scaler.step(optimizer)
            scaler.update()  # speedup 03: its factor lifts gradients into float16's range
            synchronize(device)
            dt = time.perf_counter() - start  # seconds
            # ddp: the mean loss, the slowest rank's time, and a signal to any rank, which stops all
            losses, times, signals = distributed.all_gather(loss.item(), dt, run.stopping)
            loss, dt = sum(losses) / WORLD_SIZE, max(times)
            tok_per_s = WORLD_SIZE * B * T / dt
            run.log(step, loss=loss, dt=dt, tok_per_s=tok_per_s, norm=norm.item(), lr=lr)
            run.stop(max(signals))
    return run.result


if __name__ == "__main__":
    main()
