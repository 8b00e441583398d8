"""`ladder sample`: text drawn from a model on disk."""

from pathlib import Path
from types import SimpleNamespace

import torch
from models import saved_model

from ladder import weights
from ladder.commands.main import main as ladder
from ladder.commands.sample import load_model, sample
from ladder.corpus import END_OF_TEXT


def test_sample_writes_text_that_the_seed_decides(tmp_path, monkeypatch, capsys):
    """With control characters as a terminal must not get them."""
    vocabulary = SimpleNamespace(
        encode=lambda text, allowed_special: list(text.encode()),
        decode=lambda ids: bytes(ids).decode("latin-1"),
    )
    monkeypatch.setattr("ladder.commands.sample.gpt2_vocabulary", lambda: vocabulary)
    monkeypatch.setattr("ladder.commands.sample.END_OF_TEXT", 0)
    monkeypatch.chdir(tmp_path)
    saved_model(tmp_path / "small")
    assert ladder(["sample", "small"]) == 2
    assert "small has 256 tokens, GPT-2's vocabulary 50257" in capsys.readouterr().err
    monkeypatch.setattr("ladder.commands.sample.GPT2_VOCAB_SIZE", 256)
    assert ladder(["sample"]) == 2
    folder = Path("checkpoints", "20261128-000000-1")
    saved_model(folder)
    (folder / "ddp_run-20261128-000000-000000.log").touch()
    capsys.readouterr()
    texts = []
    for seed in (1, 1, 2):
        flags = f"--tokens 20 --seed {seed} --device cpu --prompt".split()
        assert ladder(["sample", *flags, "~/be "]) == 0
        note, _, written = capsys.readouterr().out.partition("\n")
        assert "000000-1 has a validation loss of " in note and "not learnt to write yet" in note
        texts.append(written)
    text, same, other = texts
    assert text == same != other and text.startswith("~/be ")
    assert r"\x" in text


def test_what_is_drawn_follows_the_model():
    """Never a padding row, however likely; and of a long text the model sees the last positions."""
    seen = []

    class Model:
        config = SimpleNamespace(block_size=4)
        lm_head = torch.nn.Linear(1, 1)

        def __call__(self, idx):
            seen.append(idx.numel())
            logits = torch.full((*idx.shape, 50304), -100.0)
            logits[0, -1, (idx[0, -1] + 1) % 10] = 0
            logits[..., END_OF_TEXT + 1 :] = 1000
            return logits

    drawn = list(sample(Model(), [7], 9, seed=0))
    assert drawn == [8, 9, *range(7)] and max(seen) == 4


def test_a_model_sees_no_more_tokens_than_it_was_trained_on(tmp_path, monkeypatch):
    """--seq-len of its run; later positions have random weights."""
    monkeypatch.setattr("ladder.commands.sample.GPT2_VOCAB_SIZE", 256)
    model = saved_model(tmp_path)
    metadata = {"seq_len": "3", "val_loss": "9"}
    weights.save(tmp_path / "best", model.config, model.state_dict(), metadata)
    for name in (tmp_path, tmp_path / "best"):
        assert load_model(str(name))[0].config.block_size == 3
