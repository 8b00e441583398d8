"""Models on disk: folders with config.json and model.safetensors, as transformers loads them."""

import json
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes

from ladder.corpus import GPT2_VOCAB_SIZE
from ladder.errors import BadInput
from ladder.files import write_atomic

BEST = "best"  # of a run, such a folder beside its checkpoints
WEIGHTS, WTE, WPE = "model.safetensors", "transformer.wte.weight", "transformer.wpe.weight"
# nn.Linear keeps these weights as (out, in), transformers' Conv1D as (in, out).
CONV1D = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
# What config.json may say otherwise, but no script here does; left out, it is this.
FIXED = dict(model_type="gpt2", activation_function="gelu_new", layer_norm_epsilon=1e-5)
FIXED |= dict(scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False)
FIXED |= dict(n_inner=None, tie_word_embeddings=True)


def save(folder: Path, config, state: dict, facts: dict[str, str]) -> Path:
    """Write the `state` of a GPT without the rows that pad its vocabulary. Returns the folder.

    `facts` go into the file of the weights, so that both are replaced at once. Raises OSError.
    """
    weights = {name: _transposed(name, w) for name, w in state.items()}
    del weights["lm_head.weight"]  # tied
    weights[WTE] = weights[WTE][:GPT2_VOCAB_SIZE]
    config = FIXED | asdict(config) | {"architectures": ["GPT2LMHeadModel"]}
    config |= {"n_positions": config.pop("block_size"), "vocab_size": len(weights[WTE])}
    config |= dict.fromkeys(("embd_pdrop", "resid_pdrop", "attn_pdrop"), 0.0)
    write_atomic(folder / "config.json", json.dumps(config, indent=1).encode())
    write_atomic(folder / WEIGHTS, to_bytes(weights, {"format": "pt"} | facts))
    return folder


def read_facts(folder: Path) -> dict[str, str]:
    """The `facts` that were saved with a model; empty where there is none."""
    return safe_open(folder / WEIGHTS, "pt").metadata() if (folder / WEIGHTS).exists() else {}


def load(name: str) -> tuple[dict[str, int], dict[str, torch.Tensor]]:
    """The fields of GPTConfig, and FP32 weights as in the scripts, of the model in a folder.

    Of a folder of checkpoints it is the best model. Raises BadInput.
    """
    folder = Path(name) / BEST if (Path(name) / BEST).is_dir() else Path(name)
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        file = safe_open(folder / WEIGHTS, "pt")
    except (OSError, ValueError, SafetensorError) as error:
        holds = f"{BEST}/ of ddp_run.py, or config.json and {WEIGHTS}"
        raise BadInput(f"no model in {name} ({error}): expected a folder with {holds}") from None
    for key, ours in FIXED.items():
        if (value := config.get(key, ours)) != ours:
            raise BadInput(f"{folder} has {key}={value!r} in config.json, GPT-2 here {ours!r}")
    weights = {}
    for key in file.keys():  # noqa: SIM118 (it is no dict)
        own = "transformer." + key.removeprefix("transformer.")  # OpenAI's have no prefix
        # Masks that old versions saved, and the head, which is the token embedding.
        if not own.endswith((".attn.bias", ".attn.masked_bias", "lm_head.weight")):
            weights[own] = _transposed(own, file.get_tensor(key).float())
    (block_size, n_embd), n_layer = weights[WPE].shape, sum("ln_1.weight" in w for w in weights)
    shape = dict(block_size=block_size, n_layer=n_layer, n_head=config["n_head"], n_embd=n_embd)
    return shape | {"vocab_size": len(weights[WTE])}, weights


def _transposed(name: str, weight: torch.Tensor) -> torch.Tensor:
    """A weight in transformers' layout from ours, and the other way round."""
    return weight.t().contiguous() if name.endswith(CONV1D) else weight


def fill(model, shape: dict[str, int], weights: dict[str, torch.Tensor]) -> None:
    """Copy what `load` found into `model`, a GPT. Raises BadInput if its shape is another.

    Rows that pad the vocabulary become the mean of all others: each then takes at most the mean
    probability (Jensen's inequality), and 47 of them raise the loss by log(1 + 47 / 50257) = 0.0009
    at most. Zeros would outweigh all others, because GPT-2's logits lie far below 0.
    """
    here, rows = asdict(model.config), weights[WTE]  # (vocab_size, C)
    missing = here["vocab_size"] - len(rows)
    if here != shape | {"vocab_size": len(rows) + missing} or not 0 <= missing < 128:
        flags = "--model sets the size, and --seq-len above 1024 block_size"
        raise BadInput(f"the model to start from has {shape}, this run {here}: {flags}")
    rows = torch.cat([rows, rows.mean(dim=0).expand(missing, -1)])
    model.load_state_dict({**weights, WTE: rows, "lm_head.weight": rows})
