"""Models on disk: folders with config.json and model.safetensors, as transformers loads them.

best/ of a run is written and read here; transformers reads all others, where it is installed.
"""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes

from ladder.corpus import GPT2_VOCAB_SIZE, VOCABULARY_FILES, VOCABULARY_SHA256, cache_folder
from ladder.disk import write_atomic
from ladder.errors import Damaged, UsageError

BEST = "best"  # the folder of a run's best model, beside its checkpoints
WEIGHTS = "model.safetensors"
WTE = "transformer.wte.weight"
HEAD = "lm_head.weight"  # tied: the same matrix
# nn.Linear keeps these weights as (out, in), transformers' Conv1D as (in, out).
CONV1D = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
# Of config.json, what is the same in every model here.
FIXED = {
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "tie_word_embeddings": True,
}
# transformers has dropout of 0.1 by default, the scripts have none.
DROPOUT = {"embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0}


def save(folder: Path, config: object, state: dict, metadata: dict[str, str]):
    """Write the `state` of a GPT without the rows that pad its vocabulary.

    `metadata` goes into the file of the weights, so that both are replaced at once. Raises OSError.
    """
    weights = {name: _transposed(name, w) for name, w in state.items()}
    del weights[HEAD]
    weights[WTE] = weights[WTE][:GPT2_VOCAB_SIZE]
    fields = asdict(config)
    fields["n_positions"] = fields.pop("block_size")
    fields["vocab_size"] = len(weights[WTE])
    fields["architectures"] = ["GPT2LMHeadModel"]
    text = json.dumps(FIXED | DROPOUT | fields, indent=1)
    write_atomic(folder / WEIGHTS, to_bytes(weights, {"format": "pt"} | metadata))
    write_atomic(folder / "config.json", text)  # last: `find` asks for it


def save_tokenizer(folder: Path, longest: int):
    """Write GPT-2's tokenizer, of tiktoken's cache, beside a model of `longest` positions.

    Without one transformers makes an empty one. Raises OSError, or Damaged.
    """
    cache = Path(cache_folder())
    vocabulary, merges = [(cache / name).read_bytes() for name in VOCABULARY_FILES]
    if hashlib.sha256(vocabulary + merges).hexdigest() != VOCABULARY_SHA256:
        raise Damaged(f"GPT-2's vocabulary in {cache} is damaged")
    write_atomic(folder / "vocab.json", vocabulary)
    write_atomic(folder / "merges.txt", merges)
    fields = {"tokenizer_class": "GPT2Tokenizer", "model_max_length": longest}
    write_atomic(folder / "tokenizer_config.json", json.dumps(fields, indent=1))


def read(folder: Path) -> tuple[dict[str, str], dict]:
    """Return the `metadata` and the weights that `save` wrote, in transformers' layout.

    Both are empty if there are none. Raises Damaged, OSError.
    """
    path = folder / WEIGHTS
    if not path.exists():
        return {}, {}
    try:
        try:
            tensors = load_file(path)
        except OSError:  # a folder that cannot be mapped
            tensors = from_bytes(path.read_bytes())
    except SafetensorError as error:
        raise Damaged(f"{path} is damaged ({error})") from None
    with path.open("rb") as file:  # not by safe_open, which maps it
        length = int.from_bytes(file.read(8), "little")
        return json.loads(file.read(length)).get("__metadata__", {}), tensors


def find(name: str | Path) -> Path:
    """The folder of a model: `name`, or best/ if that has checkpoints. Raises UsageError."""
    for folder in (Path(name, BEST), Path(name)):
        if (folder / "config.json").exists():
            return folder
    raise UsageError(
        f"no model in {name}: expected a folder with {BEST}/ of train.py (--eval-every writes "
        f"it), or config.json and {WEIGHTS}"
    )


def load(name: str) -> tuple[dict[str, int], dict, dict[str, str]]:
    """Return the fields of GPTConfig, the FP32 weights as in the scripts, and the metadata of a
    model on disk; only what `save` wrote has metadata.

    Raises UsageError.
    """
    folder = find(name)
    metadata, tensors = read(folder)
    if "val_loss" in metadata:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    else:
        del tensors  # else a large model is in memory twice
        config, tensors = _load_with_transformers(folder)
    shape = {"block_size": config["n_positions"]}
    for field in ("vocab_size", "n_layer", "n_head", "n_embd"):
        shape[field] = config[field]
    return shape, {name: _transposed(name, w.float()) for name, w in tensors.items()}, metadata


def _load_with_transformers(folder: Path) -> tuple[dict, dict]:
    """Return the config and the weights of any GPT-2. Raises UsageError."""
    try:
        from transformers import GPT2LMHeadModel

        model, report = GPT2LMHeadModel.from_pretrained(
            folder, local_files_only=True, output_loading_info=True
        )
    except ImportError:
        raise UsageError(
            f"{folder} is no {BEST}/ of train.py: to read it, pip install transformers"
        ) from None
    except Exception as error:  # of many kinds
        raise UsageError(f"transformers does not load {folder}: {error}") from None
    config = model.config.to_dict()
    for key, ours in FIXED.items():
        if config[key] != ours:
            raise UsageError(
                f"{folder} has {key}={config[key]!r} in config.json, GPT-2 here {ours!r}"
            )
    for missing in report["missing_keys"]:  # transformers has filled it with random numbers
        raise UsageError(f"{folder} is no GPT-2, or not all of it: it has no {missing}")
    return config, model.state_dict()


def _transposed(name: str, weight: torch.Tensor) -> torch.Tensor:
    """Return a weight in transformers' layout from ours, and the other way round."""
    if name.endswith(CONV1D):
        return weight.t().contiguous()
    return weight


def start_from(model: torch.nn.Module, name: str):
    """Copy the weights of the model called `name` into `model`. Raises UsageError."""
    shape, weights, _ = load(name)
    fill(model, shape, weights)


def fill(model: torch.nn.Module, shape: dict[str, int], weights: dict):
    """Copy what `load` returned into `model`, a GPT. Raises UsageError if its shape is another.

    Rows that pad the vocabulary become the mean of all others: each then takes at most the mean
    probability (Jensen's inequality), and 47 of them raise the loss by log(1 + 47 / 50257) = 0.0009
    at most. Zeros would outweigh all others, because GPT-2's logits lie far below 0.
    """
    ours = asdict(model.config)
    missing = ours["vocab_size"] - shape["vocab_size"]
    if ours != shape | {"vocab_size": ours["vocab_size"]} or not 0 <= missing < 128:
        raise UsageError(
            f"the model to start from has {shape}, this run {ours}: --model sets the size, and "
            "--seq-len above 1024 block_size"
        )
    rows = weights[WTE]
    rows = torch.cat([rows, rows.mean(dim=0).expand(missing, -1)])
    model.load_state_dict({**weights, WTE: rows, HEAD: rows})
