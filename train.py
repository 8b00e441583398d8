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
a real run: batches of --total-batch tokens, validation, checkpoints; --recompute (memory/31, 32)

Why each helps, and what it does to the numbers: README.md of its folder, or `ladder diff N`.
"""

import math
import time
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from ladder import distributed, weights
from ladder.batches import Batches
from ladder.checkpoint import Checkpoints, due, restore
from ladder.cli import BLOCK_SIZE, MODELS, parse_train_args
from ladder.run import Run

# ddp: torchrun starts a process for each GPU, a rank, and tells it
RANK = distributed.from_torchrun("RANK")  # which of all ranks this is
LOCAL_RANK = distributed.from_torchrun("LOCAL_RANK")  # which of those on this machine
WORLD_SIZE = distributed.from_torchrun("WORLD_SIZE")  # how many there are
DISTRIBUTED = WORLD_SIZE > 1  # train: else this process trains alone, without DDP


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
        self.recompute = False  # train: --recompute
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
        if targets is None:
            return self.lm_head(self.transformer.ln_f(x))
        # speedup 31: with --recompute in 8 parts: the logits of one are in memory at a time
        parts = 8 if self.recompute else 1
        loss = 0.0
        for part in zip(x.flatten(0, 1).chunk(parts), targets.flatten().chunk(parts), strict=True):
            loss += self.part_loss(*part)
        return loss / targets.numel()

    def part_loss(self, x, targets):  # speedup 31
        """x (N, C), targets (N,) -> the sum of their losses."""
        logits = self.lm_head(self.transformer.ln_f(x)).float()  # train: FP32 if not compiled, too
        return F.cross_entropy(logits, targets, reduction="sum")


# --------------------------------------------------------------------------- training


@torch.no_grad()
def evaluate(model, held_out, args, autocast):
    """train: mean loss of --val-tokens held-out tokens, and how many; each rank takes its share."""
    B, T = args.batch_size, args.seq_len
    loss_sum = 0.0
    batches = Batches(held_out, 1, T)  # read by row
    rows = min(max(1, args.val_tokens // T), batches.rows_per_epoch)
    for start in range(0, rows, WORLD_SIZE * B):
        first = start + RANK * B
        # train: batches of one size, as many on each rank; rows that only fill them do not count
        x, y = batches.rows(range(first, first + B))
        y[max(0, rows - first) :] = -100  # what cross_entropy leaves out
        with autocast:
            loss = model(x.to(args.device), y.to(args.device))
        loss_sum += loss.item() * B
    return sum(distributed.all_gather(loss_sum)[0]) / rows, rows * T  # one sum for each rank


def get_lr(step, steps, max_lr, min_lr, warmup):  # train: both rates and the warm-up are flags
    """Learning rate of `step` (from 0) in a run of `steps`."""
    if step < warmup:
        return max_lr * (step + 1) / warmup
    progress = (step + 1 - warmup) / (steps - warmup)  # 1 at the last step
    return min_lr + (max_lr - min_lr) * 0.5 * (1 + math.cos(math.pi * progress))


def synchronize(device):
    """Wait until the GPU is idle: kernels are queued, so otherwise the clock times their launch."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


@distributed.clean_exit()  # ddp: ends the process group; a rank that fails keeps its status
def main(argv=None):
    """Train until step --steps and return the RESULT as a dict."""
    # ddp: ranks meet, and wait for each other
    if DISTRIBUTED:
        dist.init_process_group(distributed.backend(), **distributed.meeting())
    # ddp: rank 0 reads the command line for all: one B, and a mistake is told once
    args = distributed.on_rank_0(parse_train_args, __doc__, argv, WORLD_SIZE)
    if DISTRIBUTED and args.device.type == "cuda":
        args.device = torch.device("cuda", LOCAL_RANK)  # ddp: its own GPU; Run selects it
    B, T, device = args.batch_size, args.seq_len, args.device
    with Run(__file__, args, RANK, WORLD_SIZE) as run:  # ddp: rank 0 writes the log
        torch.manual_seed(args.seed)
        dtype = getattr(torch, args.dtype)  # train: a flag here
        autocast = torch.autocast(device.type, dtype, enabled=dtype != torch.float32)
        torch.set_float32_matmul_precision("high")  # speedup 02: matmuls on TF32 tensor cores
        text, held_out = distributed.load_text(args, run.print0)
        # train: where the run is saved, and with --resume the newest checkpoint there
        checkpoints = Checkpoints(args, text, held_out, run)
        run.copy_log(checkpoints.folder)  # train: the log is also beside the checkpoints
        config = GPTConfig(block_size=max(BLOCK_SIZE, T), **MODELS[args.model])  # train: longer T
        # train: raw_model stays without DDP and torch.compile, as checkpoints have it
        raw_model = model = GPT(config).to(device)
        if args.init and not checkpoints.newest:  # train: on rank 0, whose weights all get below
            distributed.on_rank_0(weights.start_from, raw_model, args.init)
        # speedup 08: decay 2-D parameters (matrices, embeddings), not biases and LayerNorms
        decay = [p for p in model.parameters() if p.dim() >= 2]
        no_decay = [p for p in model.parameters() if p.dim() < 2]
        groups = [
            {"params": decay, "weight_decay": 0.1},
            {"params": no_decay, "weight_decay": 0.0},
        ]
        # speedup 10: fused, one pass over weights, gradients and moments
        betas = (0.9, args.beta2)  # train: a flag here
        optimizer = torch.optim.AdamW(groups, lr=args.max_lr, betas=betas, eps=1e-8, fused=True)
        scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)
        # ddp: of WORLD_SIZE * B rows a step each rank takes B
        batches = Batches(text, B, T, RANK, WORLD_SIZE, args.shuffle, args.seed)
        # train: each rank adds up as many batches as make --total-batch
        grad_accum_steps = args.total_batch // (WORLD_SIZE * B * T)
        first_step = 0
        if checkpoints.newest:  # train: go on where it was saved
            saved = restore(checkpoints.newest, raw_model, optimizer, scaler)
            first_step, batches.position = saved
        if args.recompute:  # speedup 31, 32: keep inputs alone, and compute again in backward
            raw_model.recompute = True
            raw_model.part_loss = partial(checkpoint, raw_model.part_loss, use_reentrant=False)
            for block in raw_model.transformer.h:
                block.forward = partial(checkpoint, block.forward, use_reentrant=False)
        if DISTRIBUTED:
            for p in model.parameters():  # train: made now, they live in DDP's buckets, not twice
                p.grad = torch.zeros_like(p)
            # ddp: backward averages gradients over the ranks, and sends some as it computes others
            model = DistributedDataParallel(model, gradient_as_bucket_view=True)
        if not args.no_compile:  # train: a flag here
            model = torch.compile(model)  # speedup 05: fuses the elementwise chains between matmuls
        run.header(raw_model, batches, dtype=dtype, scaler=scaler, first_step=first_step)
        if due(args.eval_every, first_step, args.steps):  # train: what training starts from
            val_loss, tokens = evaluate(model, held_out, args, autocast)
            run.validated(*checkpoints.keep_best(first_step, raw_model, val_loss, tokens))

        for step in range(first_step, args.steps):
            synchronize(device)
            start = time.perf_counter()
            optimizer.zero_grad(set_to_none=not DISTRIBUTED)  # train: in the buckets they stay
            loss_sum = 0.0
            for micro in range(grad_accum_steps):  # train: several batches a step
                last = micro == grad_accum_steps - 1
                if last:  # train: the line `effective` is read off this one
                    run.last_batch()
                x, y = next(batches)  # (B, T) token ids each, on the CPU
                if device.type == "cuda":  # train: a copy from pinned memory waits for nothing
                    x = x.pin_memory().to(device, non_blocking=True)
                    y = y.pin_memory().to(device, non_blocking=True)
                else:
                    x, y = x.to(device), y.to(device)
                # train: the last backward alone averages over the ranks; DDP decides in forward
                with nullcontext() if last or not DISTRIBUTED else model.no_sync(), autocast:
                    loss = model(x, y)
                scaler.scale(loss / grad_accum_steps).backward()  # gradients add up over them
                loss_sum += loss.detach()
            scaler.unscale_(optimizer)  # speedup 08: undo the loss scale before clipping
            norm = nn.utils.clip_grad_norm_(raw_model.parameters(), 1.0)  # speedup 08: the norm
            # speedup 09: warm-up, then decay
            lr = get_lr(step, args.steps, args.max_lr, args.min_lr, args.warmup)
            for group in optimizer.param_groups:
                group["lr"] = lr
            scaler.step(optimizer)
            scaler.update()  # speedup 03: its factor lifts gradients into float16's range
            synchronize(device)
            dt = time.perf_counter() - start  # seconds
            # ddp: the mean loss, the slowest rank's time, and a signal to any rank, which stops all
            loss = loss_sum.item() / grad_accum_steps
            losses, times, signals = distributed.all_gather(loss, dt, run.stopping)
            loss, dt, stopping = sum(losses) / WORLD_SIZE, max(times), max(signals)
            tok_per_s = args.total_batch / dt
            run.log(step, loss=loss, dt=dt, tok_per_s=tok_per_s, norm=norm.item(), lr=lr)
            done = step + 1
            with run.paused():  # train: checkpoints, held-out loss: outside clock and profile
                if stopping or due(args.ckpt_every, done, args.steps):
                    # train: rank 0 writes it under another name, waits until it is on the disk, and
                    # renames it: whatever kills the run leaves it whole, or the one before it
                    checkpoints.save(done, raw_model, optimizer, scaler, batches.position)
                if due(args.eval_every, done, args.steps) and not stopping:
                    val_loss, tokens = evaluate(model, held_out, args, autocast)
                    run.validated(*checkpoints.keep_best(done, raw_model, val_loss, tokens))
            run.stop(stopping, checkpoints.newest)
    return run.result


if __name__ == "__main__":
    main()
