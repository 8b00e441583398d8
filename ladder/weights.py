"""Models on disk: folders with config.json and model.safetensors, as transformers loads them.

Others save the same model in several files, under names without a prefix (OpenAI), with masks of
attention, and with the tied matrix as the output head. Names are put right once, as they are read.
"""

import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes

from ladder.corpus import GPT2_VOCAB_SIZE, cached_vocabulary
from ladder.errors import Damaged, UsageError
from ladder.files import require_readable, write_atomic

BEST = "best"  # the folder of a run's best model, beside its checkpoints
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"  # names the files of a large model
WTE = "transformer.wte.weight"
HEAD = "lm_head.weight"
# nn.Linear keeps these weights as (out, in), transformers' Conv1D as (in, out).
CONV1D = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
# Of config.json, what is the same in every model here. A file that leaves one out means this.
FIXED = {
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "n_inner": None,
    "tie_word_embeddings": True,
}
# Its sizes: a file that leaves one out means GPT-2 124M, as in transformers.
SIZES = dict(vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12)
# transformers has dropout of 0.1 by default, the scripts have none.
DROPOUT = {"embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0}


def save(folder: Path, config, state: dict, metadata: dict[str, str]):
    """Write the `state` of a GPT without the rows that pad its vocabulary.

    `metadata` goes into the file of the weights, so that both are replaced at once. Raises OSError.
    """
    weights = {name: _transposed(name, w) for name, w in state.items()}
    del weights[HEAD]  # tied
    weights[WTE] = weights[WTE][:GPT2_VOCAB_SIZE]
    fields = asdict(config)
    fields["n_positions"] = fields.pop("block_size")
    fields["vocab_size"] = len(weights[WTE])
    fields["architectures"] = ["GPT2LMHeadModel"]
    text = json.dumps(FIXED | DROPOUT | fields, indent=1)
    write_atomic(folder / "config.json", text.encode())
    write_atomic(folder / WEIGHTS, to_bytes(weights, {"format": "pt"} | metadata))


@cache
def download_vocabulary():
    """Let tiktoken fill its cache, once in a process: where nothing answers, it takes minutes."""
    with suppress(subprocess.TimeoutExpired):
        program = "import tiktoken; tiktoken.get_encoding('gpt2')"
        subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=15)  # seconds


def save_tokenizer(folder: Path) -> bool:
    """Write GPT-2's tokenizer to `folder`, for transformers, which else makes an empty one.

    The model's config.json must be there. Returns False if the vocabulary is neither cached nor
    comes over the network. Raises OSError.
    """
    if not (folder / "merges.txt").exists():
        if not cached_vocabulary():
            download_vocabulary()
        if not cached_vocabulary():
            return False
        vocabulary, merges = cached_vocabulary()
        write_atomic(folder / "vocab.json", vocabulary.read_bytes())
        write_atomic(folder / "merges.txt", merges.read_bytes())
    longest = json.loads((folder / "config.json").read_text("utf-8"))["n_positions"]
    end = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
    fields = {"tokenizer_class": "GPT2Tokenizer", "model_max_length": longest, **end}
    write_atomic(folder / "tokenizer_config.json", json.dumps(fields, indent=1).encode())
    return True


def read_metadata(folder: Path) -> dict[str, str]:
    """Return the `metadata` that was saved with a model; empty where there is none.

    Raises Damaged, or UsageError if the file cannot be read.
    """
    path = folder / WEIGHTS
    try:
        path.open("rb").close()  # safetensors says of any file that it cannot open: not found
        return safe_open(path, "pt").metadata() or {}
    except FileNotFoundError:
        return {}
    except (OSError, SafetensorError) as error:
        require_readable(path)
        raise Damaged(f"{path} is damaged ({error})") from None


def load(name: str) -> tuple[dict[str, int], dict[str, torch.Tensor]]:
    """Return the fields of GPTConfig and the FP32 weights, as in the scripts, of a model on disk.

    `name` is its folder, or a folder of checkpoints, which has its best model. Raises UsageError.
    """
    folder = Path(name)
    if (folder / BEST).is_dir():
        folder = folder / BEST
    tensors = {}
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        for path in _files(folder):
            path.open("rb").close()
            tensors |= load_file(path)
        config = SIZES | config
        if config.get("n_inner") == 4 * config["n_embd"]:
            config["n_inner"] = None  # the same
    except (OSError, LookupError, TypeError, ValueError, SafetensorError) as error:
        holds = f"{BEST}/ of ddp_run.py (--eval-every writes it), or config.json and {WEIGHTS}"
        raise UsageError(f"no model in {name} ({error}): expected a folder with {holds}") from None
    for key, ours in FIXED.items():
        value = config.get(key, ours)
        if value != ours:
            raise UsageError(f"{folder} has {key}={value!r} in config.json, GPT-2 here {ours!r}")
    shape = {name: config[name] for name in ("vocab_size", "n_layer", "n_head", "n_embd")}
    shape["block_size"] = config["n_positions"]
    weights = {}
    for key, w in tensors.items():
        own = "transformer." + key.removeprefix("transformer.")
        if not own.endswith((".attn.bias", ".attn.masked_bias")):
            weights[own] = _transposed(own, w.float())
    head = weights.pop("transformer." + HEAD, None)
    if head is not None and not torch.equal(head, weights.setdefault(WTE, head)):
        raise UsageError(f"{folder} has a {HEAD} of its own: GPT-2's is the token embedding")
    if WTE not in weights:
        raise UsageError(f"{folder} has no {WTE}: it is no GPT-2, or not all of it")
    return shape, weights


def _files(folder: Path) -> list[Path]:
    """The files of a model's weights: one, or those that its index names."""
    index = folder / INDEX
    if (folder / WEIGHTS).exists() or not index.exists():  # in the order of transformers
        return [folder / WEIGHTS]
    names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
    return [folder / name for name in sorted(set(names))]


def _transposed(name: str, weight: torch.Tensor) -> torch.Tensor:
    """Return a weight in transformers' layout from ours, and the other way round."""
    if name.endswith(CONV1D):
        return weight.t().contiguous()
    return weight


def fill(model, shape: dict[str, int], weights: dict[str, torch.Tensor]):
    """Copy what `load` returned into `model`, a GPT. Raises UsageError if its shape is another.

    Rows that pad the vocabulary become the mean of all others: each then takes at most the mean
    probability (Jensen's inequality), and 47 of them raise the loss by log(1 + 47 / 50257) = 0.0009
    at most. Zeros would outweigh all others, because GPT-2's logits lie far below 0.
    """
    ours = asdict(model.config)
    rows = weights[WTE]  # (vocab_size, C)
    missing = ours["vocab_size"] - len(rows)
    padded = shape | {"vocab_size": ours["vocab_size"]}
    if ours != padded or not 0 <= missing < 128:
        flags = "--model sets the size, and --seq-len above 1024 block_size"
        raise UsageError(f"the model to start from has {shape}, this run {ours}: {flags}")
    padding = rows.mean(dim=0).expand(missing, -1)
    rows = torch.cat([rows, padding])
    try:
        model.load_state_dict({**weights, WTE: rows, HEAD: rows})
    except RuntimeError as error:  # names the keys that are missing, or too many, and wrong sizes
        why = " ".join(str(error).split())[:300]
        raise UsageError(f"the model to start from is no GPT-2 of {shape}: {why}") from None
