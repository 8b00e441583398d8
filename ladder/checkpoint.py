"""Models on disk: checkpoints of ddp_run.py, weights to start from, and text sampled from them.

Checkpoints are written atomically; the last two are kept, and the best by validation loss.
"""

import hashlib
import json
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

import torch

from ladder.cli import MODELS
from ladder.corpus import GPT2_VOCAB_SIZE
from ladder.errors import BadInput
from ladder.files import lock, regular, write_whole

KEYS = ("step", "position", "identity", "flags", "model", "optimizer", "scaler")
BEST = "best.pt"  # weights alone, of the step with the lowest validation loss
HASH_BYTES = 32  # a checkpoint file ends with its SHA-256, which torch.load ignores
# What a part of another type than `save` writes raises, in files of other versions or made up.
WRONG_TYPE = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
_locks = {}  # holds the lock of --ckpt-dir, by its name, while this process trains


class Damaged(BadInput):
    """A file whose bytes are not those that `save` wrote."""


def checkpoints(folder: str) -> list[Path]:
    """The complete checkpoints in `folder`, oldest first."""
    found = [path for path in Path(folder).glob("step_*.pt") if path.stem[5:].isdecimal()]
    return sorted(filter(Path.is_file, found), key=lambda path: int(path.stem[5:]))


def and_best(folder: str) -> list[Path]:
    """The complete checkpoints in `folder`, oldest first, and after them the best model."""
    return [*checkpoints(folder), *filter(Path.exists, [Path(folder) / BEST])]


def all_since(folder: str, when: float) -> bool:
    """Whether no checkpoint in `folder` is older than `when`, in seconds since the epoch."""
    return all(path.stat().st_mtime >= when for path in and_best(folder))


def _hash(file: BinaryIO, size: int) -> bytes:
    """The SHA-256 of the first `size` bytes of a file; its position is then after them."""
    sha256 = hashlib.sha256()
    file.seek(0)
    while piece := file.read(min(2**20, size - file.tell())):
        sha256.update(piece)
    return sha256.digest()


def save(folder: str, name: str | None = None, **state) -> Path:
    """Write step_NNNNNN.pt, or `name`, atomically; keep the last two steps. Returns its path.

    `state` has KEYS; for BEST, what `best_loss` and `stored` read. Raises BadInput if it cannot
    be written.
    """
    path = Path(folder) / (name or f"step_{state['step']:06d}.pt")

    def write(file):
        torch.save(state, file)
        file.write(_hash(file, file.tell()))

    try:
        if str(folder) in _locks and not (path.parent / ".lock").exists():
            # The folder was moved or deleted under this run, and is made anew.
            path.parent.mkdir(parents=True, exist_ok=True)
            _locks[str(folder)] = lock(path.parent)
        write_whole(path, write)
    except (OSError, RuntimeError) as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # torch's own message hides it ...
            raise KeyboardInterrupt from None
        if isinstance(error.__context__, OSError):  # ... and a full disk
            error = error.__context__
        raise BadInput(f"cannot write the checkpoint {path}: {error}") from error
    if not name:  # never one above it
        before = [old for old in checkpoints(folder) if int(old.stem[5:]) < state["step"]]
        for old in before[:-1]:
            old.unlink()
    return path


def read(path: Path) -> dict:
    """Load what `save` wrote, onto the CPU. Raises BadInput if it is damaged."""
    try:
        with regular(path).open("rb") as file:
            size = max(0, path.stat().st_size - HASH_BYTES)
            whole = _hash(file, size) == file.read()
    except OSError as error:
        where = "every machine has to see --ckpt-dir"
        raise BadInput(f"cannot read {path} ({error.strerror}): {where}") from None
    if not whole:
        raise Damaged(f"{path} is damaged or not a checkpoint of ddp_run.py (its SHA-256 is wrong)")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds of error
        raise other_version(path, error) from None


def of_this_run(path: Path, identity: dict) -> dict:
    """Read a checkpoint. Raises BadInput if it is damaged, or of another run."""
    saved = read(path)
    try:
        for key, value in identity.items():
            # What older versions did not save is not compared.
            if (found := saved["identity"].get(key, value)) != value:
                raise BadInput(f"{path} was saved with {key} {found}, this run has {value}")
    except WRONG_TYPE as error:
        raise other_version(path, error) from None
    return saved


def load(path: Path, identity: dict) -> dict:
    """What a run needs to go on. Raises BadInput as `of_this_run`, and if something is missing."""
    saved = of_this_run(path, identity)
    try:
        saved = {"scaler": {}} | saved  # before there was float16, checkpoints had no scaler
        saved = {key: saved[key] for key in KEYS}
        counts = saved["flags"] | saved
        for key in ("step", "position", "--steps", "--warmup"):
            if type(counts[key]) is not int or not 0 <= counts[key] < 2**63:
                raise ValueError(f"{key} is {counts[key]!r}")
    except WRONG_TYPE as error:
        raise other_version(path, error) from None
    if int(path.stem[5:]) != saved["step"]:  # `checkpoints` takes the newest by its name
        raise BadInput(f"{path} holds step {saved['step']}: rename it, or delete it")
    return saved


def other_version(path: Path, error: Exception) -> BadInput:
    """The error for a complete checkpoint that this version of ddp_run.py cannot use."""
    why = f"{type(error).__name__}: {error}".splitlines()[0][:80]
    return BadInput(f"{path} is of another version of ddp_run.py ({why})")


def form(value, name: str = "") -> dict:
    """The names of all values in nested dicts, and the type of each; of a tensor its layout too.

    Fused kernels rely on the layout and do not check it: they would write past a tensor's end.
    """
    if isinstance(value, dict):
        parts = (form(part, f"{name}[{key!r}]") for key, part in value.items())
        return {key: kind for part in parts for key, kind in part.items()}
    if isinstance(value, torch.Tensor):
        return {name: (value.layout, value.dtype, value.shape, value.stride())}
    return {name: type(value)}


def restore(path: Path, identity: dict, model, optimizer, scaler) -> tuple[int, int]:
    """Load a checkpoint into all three; return its step and position. Raises BadInput."""
    saved, scale = load(path, identity), scaler.state_dict()
    groups = optimizer.state_dict()["param_groups"]
    params = enumerate(p for group in optimizer.param_groups for p in group["params"])
    state = {i: {"step": torch.zeros(()), "exp_avg": p, "exp_avg_sq": p} for i, p in params}
    ours = {"model": model.state_dict(), "optimizer": {"state": state}, "scaler": scale}
    try:
        # A scaler's state is empty in a run that is not in float16.
        found = {key: saved[key] for key in ours} | {"scaler": (scale and saved["scaler"]) or scale}
        # The schedule sets lr, and an older PyTorch may lack a setting.
        pairs = zip(groups, found["optimizer"].pop("param_groups"), strict=True)
        if any({**own, **group, "lr": own["lr"]} != own for own, group in pairs):
            raise ValueError("AdamW had other settings")
        if differ := form(found).items() ^ form(ours).items():
            raise ValueError(f"{min(name for name, _ in differ)} is not as this run saves it")
        model.load_state_dict(found["model"])
        optimizer.load_state_dict({**found["optimizer"], "param_groups": groups})
        scaler.load_state_dict(found["scaler"])
    except torch.OutOfMemoryError:
        raise
    except WRONG_TYPE as error:
        raise other_version(path, error) from None
    return saved["step"], saved["position"]


def choose(folder: str, resume: bool, identity: dict, flags: dict, say: Callable) -> Path | None:
    """The checkpoint to resume, already checked, or None for a fresh start.

    It is the newest that is not damaged. `folder` stays locked until this process ends. Prints a
    note for each of `flags` that differs from the saved one. Raises BadInput; also if checkpoints
    cannot be written, because hours later is too late to find out.
    """
    _locks.clear()  # of an earlier run in the same process
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        _locks[str(folder)] = file = lock(Path(folder))
        tempfile.TemporaryFile(dir=folder).close()  # .lock may be left by a user who could write
        if not file.tell():  # `ranks.begun` reads it: a copy of the file has another mtime
            file.write(str(os.fstat(file.fileno()).st_mtime))
            file.flush()
    except OSError as error:
        raise BadInput(f"cannot write checkpoints into {folder}: {error.strerror}") from None
    found = checkpoints(folder)
    if (old := and_best(folder)) and not resume:
        do = "continue it with --resume, " if found else ""  # from BEST alone no run goes on
        do += "delete it, or choose another --ckpt-dir"
        raise BadInput(f"{old[-1]} is of an earlier run: {do}")
    chosen, saved = _newest(found, identity, say) if resume else (None, None)
    if old and not saved:  # BEST alone: the first validation would write over it
        try:
            of_this_run(old[-1], identity)
        except BadInput as error:
            raise BadInput(f"{error}: choose another --ckpt-dir, or delete it") from None
    if saved:
        for damaged in found[found.index(chosen) + 1 :]:  # it must not count as one of two to keep
            say(f"note  renamed {damaged} to {damaged.rename(f'{damaged}.damaged').name}")
        say(f"note  going on after step {saved['step']}, from {chosen}")
        if saved["step"] >= flags["--steps"]:
            say(f"note  nothing is left to train: --steps is {flags['--steps']}")
        for flag, value in flags.items():
            if str(before := saved["flags"].get(flag)) != str(value):  # it may be a tensor
                say(f"note  {flag} was {before}, now it is {value}")
    for unfinished in filter(Path.is_file, Path(folder).glob("*.pt.*.tmp")):
        if not re.fullmatch(r"(step_\d{6,}|best)\.pt\.\d+\.tmp", unfinished.name):
            continue
        say(f"note  deleted {unfinished}, which was never finished; the one before it is used")
        unfinished.unlink()
    return chosen


def _newest(found: list[Path], identity: dict, say) -> tuple[Path | None, dict | None]:
    """The last of `found` that is not damaged, and its content. Raises BadInput if all are."""
    for path in reversed(found):
        try:
            return path, load(path, identity)
        except Damaged as error:
            if path == found[0]:
                raise BadInput(f"{error}: delete it to start from the beginning") from None
            say(f"note  {error}: the one before it is used")
    return None, None


def saved_flags(folder: str) -> dict | None:
    """The flags that the newest checkpoint in `folder` was saved with, by name."""
    with suppress(BadInput):  # `choose` will say it
        _, saved = _newest(checkpoints(folder), {}, say=lambda line: None)
        return saved and saved["flags"]


def best_loss(folder: str, identity: dict, resumed: Path | None, say: Callable) -> float:
    """The validation loss of the best model in `folder`; infinite where this run has none there.

    A run that did not resume a checkpoint has none: it may have begun with other weights. What it
    finds is renamed, so that a worse model does not replace it.
    """
    path = Path(folder) / BEST
    try:
        if path.exists():
            saved = of_this_run(path, identity)
            if not resumed:
                raise ValueError("it is of an earlier start")
            if math.isfinite(loss := float(saved["val_loss"])):
                return loss
            raise ValueError(f"its val_loss is {loss}")
    except (BadInput, *WRONG_TYPE) as error:
        outcome, earlier = "the next validation writes it anew", Path(f"{path}.earlier")
        if not earlier.exists():
            outcome = f"renamed to {path.rename(earlier).name}"
        say(f"note  {path} cannot be used ({error}): {outcome}")
    return math.inf


# --------------------------------------------------------------- weights, from here or elsewhere


@dataclass
class Stored:
    """The weights of a GPT-2 on disk, in FP32, named and laid out as in the scripts."""

    name: str  # where
    shape: dict[str, int]  # the fields of GPTConfig
    tokenizer: str  # "gpt2" or "bytes"
    weights: dict[str, torch.Tensor]

    def __post_init__(self):
        for key, value in self.shape.items():
            if type(value) is not int or value < 1:
                raise BadInput(f"{self.name} has {key} {value!r}: expected a positive integer")


# nn.Linear keeps these weights as (out, in), transformers' Conv1D as (in, out).
CONV1D = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
# What config.json of transformers may say otherwise, but no script here does; left out, it is this.
FIXED = {
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "n_inner": None,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}


def transposed(name: str, weight: torch.Tensor) -> torch.Tensor:
    """A parameter in transformers' layout from ours, and the other way round."""
    return weight.t().contiguous() if name.endswith(CONV1D) else weight


def stored(name: str) -> Stored:
    """A checkpoint, the best of a folder of them, or a folder of transformers. Raises BadInput."""
    path = Path(name)
    if (path / "config.json").exists():
        return _of_transformers(path)
    if path.is_dir():
        if not (found := and_best(name)):
            raise BadInput(f"{name} holds neither a checkpoint nor config.json of transformers")
        path = found[-1]
    if not path.exists():
        raise BadInput(f"no such file or folder: {path}")
    saved = read(path)
    try:
        weights, identity = dict(saved["model"]), saved["identity"]
        vocab_size, n_embd = weights["transformer.wte.weight"].shape
        shape = {"block_size": len(weights["transformer.wpe.weight"]), "vocab_size": vocab_size}
        shape |= MODELS[identity["--model"]] | {"n_embd": n_embd}
        return Stored(name, shape, identity["data"].partition(" ")[0], weights)
    except WRONG_TYPE as error:
        raise other_version(path, error) from None


def _of_transformers(folder: Path) -> Stored:
    """The model in a folder that transformers' save_pretrained wrote, or one like OpenAI's."""
    try:
        config = json.loads(regular(folder / "config.json").read_text(encoding="utf-8"))
        for key, ours in FIXED.items():
            if (value := config.get(key, ours)) != ours:
                raise BadInput(f"{folder} has {key}={value!r} in config.json, GPT-2 here {ours!r}")
        shape = {key: config[key] for key in ("vocab_size", "n_layer", "n_head", "n_embd")}
        shape["block_size"] = config["n_positions"]
        tokenizer = config.get("ladder_tokenizer", "gpt2")  # `ladder export` writes it
        weights = {}
        for name, tensor in _tensors(folder).items():
            name = "transformer." + name.removeprefix("transformer.")
            # Masks that old versions saved, and the head, which is the token embedding.
            if not name.endswith((".attn.bias", ".attn.masked_bias", "lm_head.weight")):
                if not tensor.is_floating_point():  # quantised
                    raise BadInput(f"{folder} has {name} as {tensor.dtype}: expected floats")
                weights[name] = transposed(name, tensor.float())
        weights["lm_head.weight"] = weights["transformer.wte.weight"]
    except BadInput:
        raise
    except Exception as error:  # torch and safetensors raise many kinds of error
        why = f"{type(error).__name__}: {error}".splitlines()[0][:80]
        raise BadInput(f"{folder} is not a GPT-2 that transformers saved ({why})") from error
    return Stored(str(folder), shape, tokenizer, weights)


def _tensors(folder: Path) -> dict[str, torch.Tensor]:
    if not (path := regular(folder / "model.safetensors")).exists():
        path = regular(folder / "pytorch_model.bin")
        return torch.load(path, map_location="cpu", weights_only=True)
    try:
        from safetensors.torch import load_file
    except ImportError:
        raise BadInput(f"to read {path}, pip install safetensors") from None
    return load_file(path)


def start_from(name: str, model, tokenizer: str) -> None:
    """Load the weights at `name` into `model`, a GPT for tokens of `tokenizer`. Raises BadInput."""
    found = stored(name)
    if found.tokenizer != tokenizer:
        raise BadInput(f"{name} was trained on {found.tokenizer} tokens, this text has {tokenizer}")
    fill(model, found)


def fill(model, found: Stored) -> None:
    """Load weights into `model`, a GPT. Raises BadInput if they do not fit.

    Rows that pad the vocabulary become the mean of all others. Their logit is then the mean logit,
    so that (by Jensen's inequality) each takes at most the mean probability: 47 rows at most raise
    the loss by log(1 + 47 / 50257) = 0.0009. Rows of zeros would outweigh all others, because
    GPT-2's logits lie far below 0.
    """
    for key, here in asdict(model.config).items():
        there = found.shape[key]
        if there != here and not (key == "vocab_size" and GPT2_VOCAB_SIZE <= there < here):
            flags = "--model sets the size, and --seq-len above 1024 block_size"
            raise BadInput(f"{found.name} has {key} {there}, this run {here}: {flags}")
    try:
        if name := not_finite(found.weights):
            raise BadInput(f"{found.name} has values in {name} that are not finite numbers")
        rows = found.weights["transformer.wte.weight"]  # (vocab_size, C)
        missing = model.config.vocab_size - found.shape["vocab_size"]
        rows = torch.cat([rows, rows.mean(dim=0).expand(missing, -1)])
        both = {"transformer.wte.weight": rows, "lm_head.weight": rows}
        model.load_state_dict({**found.weights, **both})
    except (AttributeError, RuntimeError) as error:  # a line of its own for each tensor
        why = " ".join(str(error).split())[:120]
        raise BadInput(f"{found.name} lacks tensors of GPT-2, or has others: {why}") from None


def not_finite(weights: dict[str, torch.Tensor]) -> str | None:
    """The name of the first tensor with NaN, infinity or integers in it, if there is one."""
    bad = (n for n, w in weights.items() if not (w.is_floating_point() and w.isfinite().all()))
    return next(bad, None)


@torch.no_grad()
def sample(model, ids: list[int], count: int, known_tokens: int, seed: int = 0) -> Iterator[int]:
    """Yield `count` token ids, each drawn from what the model predicts after `ids` and the others.

    Ids from `known_tokens` on, such as padding rows, stand for no text and are never drawn. Of a
    text longer than block_size the model sees the end.
    """
    generator = torch.Generator().manual_seed(seed)
    device, ids = model.lm_head.weight.device, list(ids)
    for _ in range(count):
        seen = torch.tensor([ids[-model.config.block_size :]], device=device)  # (1, T)
        logits = model(seen)[0][0, -1].float().cpu()  # (vocab_size,)
        if not logits.isfinite().all():
            raise BadInput("the model computes NaN or infinity: it has no text to write")
        logits[known_tokens:] = -math.inf
        ids.append(torch.multinomial(logits.softmax(0), 1, generator=generator).item())
        yield ids[-1]
