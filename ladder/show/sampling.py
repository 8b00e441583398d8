"""Text that a model writes."""

import runpy

from ladder.corpus import END_OF_TEXT, GPT2_VOCAB_SIZE
from ladder.files import ROOT


def load_model(name: str):
    """The model on disk called `name`, as `weights.find` finds it, on the CPU. Raises UsageError.

    Its block_size is the T of its run: no later position was trained.
    """
    from ladder import weights  # it imports torch, which --help need not

    shape, state = weights.load(name)
    script = runpy.run_path(str(ROOT / "ddp_run.py"))
    model = script["GPT"](script["GPTConfig"](**shape))
    weights.fill(model, shape, state)
    metadata = weights.read_metadata(weights.find(name))
    model.config.block_size = int(metadata.get("seq_len", shape["block_size"]))
    return model


def sample(model, ids: list[int], count: int, seed: int):
    """Yield `count` token ids, each drawn from what the model predicts after those before it.

    Rows that pad the vocabulary are never drawn. Of a longer text the model sees the last
    block_size tokens.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    ids = [END_OF_TEXT, *ids]
    device = model.lm_head.weight.device
    for _ in range(count):
        seen = torch.tensor([ids[-model.config.block_size :]], device=device)  # (1, T)
        with torch.no_grad():
            logits = model(seen)  # (1, T, vocab_size)
        probabilities = logits[0, -1, :GPT2_VOCAB_SIZE].float().cpu().softmax(dim=0)
        token = torch.multinomial(probabilities, 1, generator=generator).item()
        ids.append(token)
        yield token
