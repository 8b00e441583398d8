"""DDP

Change: rung 10 on several GPUs; batch, validation and checkpoints of a real run.
Why: each rank holds the whole model and works on its own rows of the batch; the gradients are
  averaged between the ranks, 4 bytes x 124.5M = 498 MB once a step. DistributedDataParallel sends
  them in buckets while the rest of the backward pass still computes. The batch is fixed in tokens
  (--total-batch), so that more ranks mean fewer micro-steps each and not another training run.
Numerics: rounding. The same tokens in the same order, the gradient summed in another one.
Run: torchrun --standalone --nproc_per_node=2 ddp_run.py
"""

import json
import math
import os
import signal
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from ladder import checkpoint
from ladder.batches import Batches, read_rows
from ladder.cli import MODELS, count, parse_args, positive
from ladder.corpus import END_OF_TEXT, load_splits
from ladder.errors import BadInput
from ladder.machine import require_bf16
from ladder.run import Run

# ddp: what torchrun tells each process; without it there is one, on one device
DISTRIBUTED = "RANK" in os.environ
RANK, WORLD, LOCAL_RANK, LOCAL_WORLD, RESTARTS = (
    int(os.environ.get(name, default))
    for name, default in (
        ("RANK", 0),
        ("WORLD_SIZE", 1),
        ("LOCAL_RANK", 0),
        ("LOCAL_WORLD_SIZE", 1),
        ("TORCHELASTIC_RESTART_COUNT", 0),
    )
)

MAX_LR = 6e-4  # speedup 09: at the end of the warm-up
MIN_LR = MAX_LR / 10  # at the last step


# ------------------------------------------------------------------------------ model


@dataclass
class GPTConfig:
    block_size: int = 1024  # longest sequence
    vocab_size: int = 50304  # speedup 07: 50257 padded to a multiple of 128, which tiles fit
    n_layer: int = 12  # this and the next two: 124M by default; --model sets others
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
            if name.endswith("c_proj.weight"):  # speedup 04: what is added 2 * n_layer times
                nn.init.normal_(p, mean=0.0, std=0.02 / math.sqrt(2 * config.n_layer))

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, idx, targets=None):
        """idx, targets: (B, T) token ids -> logits (B, T, vocab_size), mean loss or None."""
        positions = torch.arange(idx.size(1), device=idx.device)
        x = self.transformer.wte(idx) + self.transformer.wpe(positions)  # (B, T, C)
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.transformer.ln_f(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


# ---------------------------------------------------------------------------- ranks


def meet():
    """Wait until all ranks are there: NCCL between GPUs, gloo between CPUs."""
    store, rank, world = next(dist.rendezvous("env://"))
    if os.environ.get("GROUP_WORLD_SIZE") == "1":
        # torchrun keeps its store when it restarts the ranks of a node: those that died left
        # their addresses there. (Several nodes count restarts each for itself; see README.md.)
        store = dist.PrefixStore(f"start {RESTARTS}", store)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=world)


def on_rank_0(function):
    """function() on rank 0 alone, its result on all. Where it fails, rank 0 says why, all exit."""
    if not DISTRIBUTED:
        return function()
    result = [None]
    if RANK == 0:
        try:
            result = [function()]
        except SystemExit as end:
            if end.code:
                raise
            result = [end]  # --help
    try:
        dist.broadcast_object_list(result)
    except RuntimeError:  # rank 0 is gone
        raise SystemExit(2) from None
    if isinstance(result[0], SystemExit):
        raise result[0]
    return result[0]


def reduced(values, op):
    """Numbers of this rank -> the sum or the maximum of each over all ranks."""
    values = torch.tensor(values, dtype=torch.float64)
    if DISTRIBUTED:
        dist.all_reduce(values, op)
    return values.tolist()


def micro_steps(total, B, T):
    """Of each rank, per optimizer step of `total` tokens. Raises BadInput if that is no number."""
    unit = WORLD * B * T
    if total % unit:
        near = [n for n in (total // unit * unit, (total // unit + 1) * unit) if n]
        raise BadInput(
            f"--total-batch {total} is no multiple of {unit} ({WORLD} ranks x B={B} x T={T}); "
            f"the nearest that are: {', '.join(map(str, near))}"
        )
    return total // unit


# ----------------------------------------------------------------------- held-out text


@torch.no_grad()
def evaluate(model, tokens, rows, args):
    """Mean loss over the first `rows` rows of the held-out tokens; each rank takes its share."""
    loss_sum = 0.0
    for first in range(RANK * args.batch_size, rows, WORLD * args.batch_size):
        part = range(first, min(first + args.batch_size, rows))
        x, y = read_rows(tokens, args.seq_len, part)
        with torch.autocast(args.device.type, torch.bfloat16, args.dtype == "bfloat16"):
            _, loss = model(x.to(args.device), y.to(args.device))
        loss_sum += loss.item() * len(part)
    return reduced([loss_sum / rows], dist.ReduceOp.SUM)[0]


@torch.no_grad()
def sample(model, length, known_tokens, device):
    """`length` token ids, drawn one after the other from what follows <|endoftext|>."""
    generator = torch.Generator().manual_seed(0)
    ids = [END_OF_TEXT]
    for _ in range(length):
        logits, _ = model(torch.tensor([ids], device=device))
        logits = logits[0, -1].float().cpu()  # (vocab_size,)
        logits[known_tokens:] = -math.inf  # the padding rows of speedup 07 stand for no text
        ids.append(torch.multinomial(F.softmax(logits, dim=0), 1, generator=generator).item())
    return ids[1:]


# --------------------------------------------------------------------------- training


def get_lr(step, steps):
    """Learning rate of `step` (from 0) in a run of `steps`."""
    warmup = max(1, steps // 5)
    if step < warmup:
        return MAX_LR * (step + 1) / warmup
    progress = (step + 1 - warmup) / (steps - warmup)  # 1 at the last step
    return MIN_LR + (MAX_LR - MIN_LR) * 0.5 * (1 + math.cos(math.pi * progress))


def synchronize(device):
    """Wait until the device has done all work queued on it; a CPU queues none."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def add_arguments(parser):
    """The flags beyond those of every script."""
    parser.add_argument(
        "--total-batch",
        type=positive,
        metavar="TOKENS",
        help="an optimizer step, all ranks and micro-steps together (CUDA: 524288, else 4096)",
    )
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument(
        "--eval-every", type=count, default=100, metavar="STEPS", help="0: never (default: 100)"
    )
    parser.add_argument(
        "--ckpt-every", type=count, default=0, metavar="STEPS", help="0: on SIGTERM alone (default)"
    )
    parser.add_argument("--ckpt-dir", default="checkpoints", help="default: checkpoints")
    parser.add_argument("--resume", action="store_true", help="from the last one in --ckpt-dir")


def parse(argv):
    """The flags, defaults filled in. Ends the process with status 2 where they make no sense."""
    args = parse_args(__doc__, argv, add_arguments)
    on_cuda = args.device.type == "cuda"
    args.total_batch = args.total_batch or (524288 if on_cuda else 4096)
    trouble = None
    if DISTRIBUTED and args.device.type == "mps":
        trouble = "gloo does not reach an Apple GPU: --device cpu, or train without torchrun"
    if on_cuda and DISTRIBUTED:
        if args.device.index is not None:
            trouble = f"--device {args.device}: torchrun gives each process a GPU, say cuda"
        elif (gpus := torch.cuda.device_count()) < LOCAL_WORLD:
            trouble = (
                f"torchrun started {LOCAL_WORLD} processes on this machine, where PyTorch sees "
                f"{gpus} CUDA devices: --nproc_per_node={gpus}, or train with --device cpu"
            )
    if trouble:
        print(f"error {trouble}", file=sys.stderr)
        raise SystemExit(2)
    return args


def prepare(args, say):
    """What one rank does for all: look at the flags, the corpus and the checkpoints.

    Returns micro-steps per step, rows to validate on, what a checkpoint has to agree with, and the
    one to go on from or None. Raises BadInput.
    """
    accumulation = micro_steps(args.total_batch, args.batch_size, args.seq_len)
    text, held_out = load_splits(args.data, say)
    val_rows = 0
    if args.eval_every:
        rows = Batches(held_out, 1, args.seq_len).per_epoch
        val_rows = min(args.total_batch // args.seq_len, rows)
    identity = {
        "--model": args.model,
        "--total-batch": args.total_batch,
        "--seq-len": args.seq_len,
        "--seed": args.seed,
        "data": text.identity,
    }
    return (
        accumulation,
        val_rows,
        identity,
        checkpoint.choose(args.ckpt_dir, args.resume, identity, say),
    )


def main(argv=None):
    """Train until step --steps, on all ranks, and return the RESULT as a dict."""
    if not DISTRIBUTED:
        return train(argv)
    meet()
    try:
        result = train(argv)
    except SystemExit as end:
        # Past Python's own exit, in which gloo's threads would abort and hide the status.
        sys.stdout.flush()
        os._exit(end.code or 0)
    dist.destroy_process_group()
    return result


def train(argv):
    """What rung 10 does in main(), on this rank."""
    args = on_rank_0(lambda: parse(argv))
    if DISTRIBUTED and args.device.type == "cuda":
        args.device = torch.device("cuda", LOCAL_RANK)
        torch.cuda.set_device(args.device)
    B, T, device = args.batch_size, args.seq_len, args.device
    with Run(__file__, args, RANK, WORLD) as run:
        torch.manual_seed(args.seed)
        if args.dtype == "bfloat16":
            require_bf16(device)  # speedup 03: an emulated bfloat16 would be slower than FP32
        torch.set_float32_matmul_precision("high")  # speedup 02: matmuls on TF32 tensor cores
        (restarts,) = reduced([RESTARTS], dist.ReduceOp.MAX)  # a node knows of its own only
        args.resume = args.resume or restarts > 0
        accumulation, val_rows, identity, path = on_rank_0(lambda: prepare(args, run.say))
        text, held_out = load_splits(args.data, run.say)  # tokenized by now
        if text.identity != identity["data"]:
            raise BadInput(f"rank 0 reads {identity['data']}, this rank {text.identity}: mend one")

        raw_model = GPT(GPTConfig(**MODELS[args.model])).to(device)
        # speedup 08: decay what multiplies (matrices, embeddings), not what shifts or scales
        decay = [p for p in raw_model.parameters() if p.dim() >= 2]
        no_decay = [p for p in raw_model.parameters() if p.dim() < 2]
        groups = [
            {"params": decay, "weight_decay": 0.1},
            {"params": no_decay, "weight_decay": 0.0},
        ]
        # speedup 10: fused, one pass over weights, gradients and moments
        optimizer = torch.optim.AdamW(groups, lr=MAX_LR, betas=(0.9, 0.95), eps=1e-8, fused=True)
        first_step, row = 0, 0  # row: the next one of the corpus that no rank has read
        if path:
            saved = checkpoint.load(path, identity)
            first_step, row = saved["step"], saved["row"]
            raw_model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            torch.set_rng_state(saved["random"])
            run.say(f"note  going on after step {first_step}, from {path}")
            if saved["steps"] != args.steps:
                run.say(f"note  the schedule was of {saved['steps']} steps, now of {args.steps}")
        model = raw_model
        if DISTRIBUTED:  # ddp: the same weights on all ranks, gradients averaged as they appear
            model = DistributedDataParallel(model)
        if not args.no_compile:
            model = torch.compile(model)  # speedup 05: fuses the elementwise chains
        sizes = {"total_batch": args.total_batch, "accumulation": accumulation, "ranks": WORLD}
        on_rank_0(lambda: run.header(raw_model, Batches(text, 1, T), args.total_batch, **sizes))
        stop = []  # ddp: SIGTERM, from a scheduler that wants the machine back
        signal.signal(signal.SIGTERM, lambda *_: stop.append(True))

        for step in run.steps(raw_model, first_step):  # then one more under a profiler: undone
            synchronize(device)
            start = time.perf_counter()
            optimizer.zero_grad()
            loss_sum = 0.0
            for micro in range(accumulation):
                # ddp: B rows for each rank, in reading order
                x, y = read_rows(text, T, range(row + RANK * B, row + (RANK + 1) * B))  # (B, T)
                row += WORLD * B
                x, y = x.to(device), y.to(device)
                # ddp: only the last backward averages the gradients, and forward has to know
                waits = DISTRIBUTED and micro < accumulation - 1
                with model.no_sync() if waits else nullcontext():
                    # speedup 03: bf16 matmuls
                    with torch.autocast(device.type, torch.bfloat16, args.dtype == "bfloat16"):
                        _, loss = model(x, y)
                    (loss / accumulation).backward()
                loss_sum += loss.detach()
            norm = nn.utils.clip_grad_norm_(raw_model.parameters(), 1.0)  # speedup 08: the norm
            lr = get_lr(step, args.steps)  # speedup 09: warm-up, then cosine
            for group in optimizer.param_groups:
                group["lr"] = lr
            optimizer.step()
            synchronize(device)
            dt = time.perf_counter() - start  # seconds
            # ddp: the mean over the whole batch; the slowest rank's time; SIGTERM to any rank
            (loss,) = reduced([loss_sum.item() / (accumulation * WORLD)], dist.ReduceOp.SUM)
            dt, stopping = reduced([dt, len(stop)], dist.ReduceOp.MAX)
            tok_per_s = args.total_batch / dt
            run.log(step, loss=loss, dt=dt, tok_per_s=tok_per_s, norm=norm.item(), lr=lr)
            if run.probing:
                continue
            done = step + 1
            if args.eval_every and (done % args.eval_every == 0 or done == args.steps):
                val_loss = evaluate(raw_model, held_out, val_rows, args)
                run.say(f"val   step={done} loss={val_loss:.6f} tokens={val_rows * T}")
            every = args.ckpt_every
            if RANK == 0 and (stopping or (every and (done % every == 0 or done == args.steps))):
                path = checkpoint.save(
                    args.ckpt_dir,
                    step=done,
                    steps=args.steps,
                    row=row,
                    identity=identity,
                    model=raw_model.state_dict(),
                    optimizer=optimizer.state_dict(),
                    random=torch.get_rng_state(),  # nothing draws on a GPU: there is no dropout
                )
                run.say(f"note  saved {path}")
            if stopping:
                run.say("note  SIGTERM: stopped after a whole step, --resume goes on")
                break
        else:
            if RANK == 0:
                ids = sample(raw_model, 32, text.known_tokens, device)
                run.say(f"sample {json.dumps(text.decode(ids))}")
    return run.result


if __name__ == "__main__":
    main()
