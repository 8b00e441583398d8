"""What a run of ddp_run.py leaves: checkpoints to resume, a best model, and text drawn from it."""

import math
import os
import re
from types import SimpleNamespace

import pytest
import torch
import transformers
from conftest import ROOT, TINY, command_line, last_log, load, random_batch
from safetensors.torch import load_file, save_file
from test_model import reference_model
from torch.nn.functional import cross_entropy

from ladder import checkpoint, ranks, weights
from ladder.commands.main import main as ladder
from ladder.commands.sample import sample
from ladder.corpus import END_OF_TEXT
from ladder.errors import BadInput
from ladder.files import lock

DDP = load(ROOT / "ddp_run.py")
OFF = torch.amp.GradScaler("cpu", enabled=False)
IDENTITY = {"model": "tiny", "data": "topics 0123"}


@pytest.fixture(scope="module")
def trained(shard, smaller, tmp_path_factory):
    """The folder of checkpoints of a run of six steps, validated after each two."""
    folder = tmp_path_factory.mktemp("trained")
    DDP.main(command_line(shard, folder, "--eval-every", 2, "--ckpt-every", 2))
    return folder / "ckpt"


def model_of(name, vocab_size=None):
    """The model that ddp_run.py starts with when it is given --init NAME."""
    shape, found = weights.load(str(name))
    padded = shape | {"vocab_size": vocab_size or shape["vocab_size"]}
    model = DDP.GPT(DDP.GPTConfig(**padded))
    weights.fill(model, shape, found)
    return model


def stepped():
    """A model and its optimizer after a step."""
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    model(torch.ones(64)).sum().backward()
    optimizer.step()
    return model, optimizer


def save(folder, step, scaler=OFF):
    model, optimizer = stepped()
    return checkpoint.save(
        folder,
        step,
        model=model.state_dict(),
        optimizer=optimizer.state_dict(),
        scaler=scaler.state_dict(),
        position=0,
        identity=IDENTITY,
        schedule="9 steps",
    )


def find(folder, say=print, resume=True, **identity):
    return checkpoint.find_checkpoint(folder, resume, IDENTITY | identity, "9 steps", say)


# --------------------------------------------------------------------------------- checkpoints


def test_a_run_has_a_folder_of_its_own_and_the_newest_is_resumed(
    shard, smaller, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)

    def run(*flags):
        own = command_line(shard, tmp_path, *flags)
        DDP.main([word for word in own if not word.startswith("--ckpt-dir")])

    run("--steps", 1, "--ckpt-every", 0)
    assert not os.path.exists("checkpoints")
    for number in (1, 2):
        monkeypatch.setattr(os, "getpid", lambda number=number: number)  # in the same second
        run("--steps", number)
        (folder,) = tmp_path.glob(f"checkpoints/*-{number}")
        assert sorted(os.listdir(folder)) == [".lock", "best", f"step_00000{number}.pt"]
    (tmp_path / "checkpoints" / "mine").mkdir()  # a --ckpt-dir, which has no date
    run("--steps", 4, "--resume")
    log = last_log(tmp_path)
    assert [step["step"] for step in log.steps] == [3, 4]
    rate = "steps, 1 of them warm-up, from 0.0006 to 6e-05"
    assert f"another learning rate from here on: 4 {rate}, not 2 {rate}" in log.notes


def test_a_model_with_a_loss_of_nan_is_not_the_best(tmp_path):
    job = ranks.Job(None, None, 1, 1, {}, tmp_path, checkpoint=None, best=math.inf)
    job.save_best(run=None, step=1, model=None, val_loss=math.nan)
    assert job.best == math.inf
    assert not (tmp_path / weights.BEST).exists()


def test_a_damaged_checkpoint_gives_way_to_the_one_before_it(tmp_path):
    first = save(tmp_path, 1)
    second = save(tmp_path, 2)
    assert find(tmp_path) == second
    second.write_bytes(second.read_bytes()[:-99])
    said = []
    assert find(tmp_path, said.append) == first
    assert "is damaged" in said[0] and "going on after step 1" in said[1]
    assert save(tmp_path, 3).exists() and first.exists() and not second.exists()
    (tmp_path / "step_000003.pt").unlink()
    first.write_bytes(b"")
    with pytest.raises(BadInput, match=r"step_000001.pt is damaged .* delete it"):
        find(tmp_path)
    assert first.exists()


def test_two_are_kept_and_nothing_unfinished(tmp_path):
    (tmp_path / "unfinished.tmp").touch()  # of a run that was killed
    for step in (9, 999999, 1000000):
        save(tmp_path, step)
    assert find(tmp_path).name == "step_1000000.pt"
    assert sorted(os.listdir(tmp_path)) == [".lock", "step_1000000.pt", "step_999999.pt"]


def test_another_run_is_refused_and_its_texts_are_named(tmp_path):
    save(tmp_path, 1)
    with pytest.raises(BadInput, match="saved with data topics 0123, this run has mine 4567"):
        find(tmp_path, data="mine 4567")
    holds = f"{tmp_path} holds an earlier run: continue it with"
    with pytest.raises(BadInput, match=re.escape(holds)):
        find(tmp_path, resume=False)
    checkpoint._locks.clear()
    with lock(tmp_path), pytest.raises(BadInput, match="another run is at work"):
        find(tmp_path)


def test_what_is_restored_has_the_layout_of_the_run(tmp_path):
    """Fused kernels would write past the end of a tensor of another layout."""
    model, optimizer = stepped()
    path = tmp_path / "other.pt"
    saved = checkpoint.read(save(tmp_path, 3))
    moments = saved["optimizer"]["state"]
    moments[0]["exp_avg"] = torch.ones(1).expand(64, 64)  # one number on disk
    moments[1]["exp_avg_sq"] = torch.ones(64, dtype=torch.float16)
    torch.save(saved, path)
    assert checkpoint.restore(path, model, optimizer, OFF) == (3, 0)
    for p in model.parameters():
        own = optimizer.state[p]
        for moment in (own["exp_avg"], own["exp_avg_sq"]):
            assert moment.stride() == p.stride() and moment.dtype == torch.float32
    assert (optimizer.state[model.weight]["exp_avg"] == 1).all()
    optimizer.step()


def test_float16_may_begin_and_end_with_a_checkpoint(tmp_path):
    """Other types have an empty state of the scaler."""
    scaler = torch.amp.GradScaler("cpu", 8.0)
    for before, now, scale in ((scaler, OFF, 1), (OFF, scaler, 8)):
        path = save(tmp_path, 3, before)
        assert checkpoint.restore(path, *stepped(), now) == (3, 0)
        assert now.get_scale() == scale


# ---------------------------------------------------------------------------------- best models


def test_the_best_model_by_validation_stays(alone, tmp_path, monkeypatch):
    """Over a resumption too, also of a run that was killed before its first checkpoint."""
    found = iter([3.0, 2.0, 4.0, 5.0, 2.5, 1.0])
    monkeypatch.setattr(DDP, "evaluate", lambda *_: next(found))
    best = tmp_path / "ckpt" / "best"

    def after(steps, *more):
        flags = ["--eval-every", 1, "--ckpt-every", 1, "--steps", steps, *more]
        assert alone(*flags, module=DDP)[0] == 0
        return [weights.read_metadata(best)[key] for key in ("step", "val_loss")]

    assert after(3) == ["2", "2.0"]
    assert after(5, "--resume") == ["2", "2.0"]
    assert after(6, "--resume") == ["6", "1.0"]
    for path in checkpoint.checkpoints(tmp_path / "ckpt"):
        path.unlink()
    status, _, err = alone("--resume", "--seed", 7)
    assert status == 2 and "best was saved with seed 1337, this run has 7" in err


def test_transformers_opens_the_best_model(trained):
    """The same logits; and --init takes it back, bit for bit."""
    theirs = transformers.AutoModelForCausalLM.from_pretrained(trained / "best")
    ours = model_of(trained)
    x, _ = random_batch(V=256)
    with torch.no_grad():
        logits, _ = ours(x)
        torch.testing.assert_close(theirs(x).logits, logits, rtol=1e-5, atol=1e-5)
    last = checkpoint.read(trained / "step_000006.pt")["model"]
    for name, w in ours.state_dict().items():
        assert torch.equal(w, last[name])


def test_padding_rows_are_left_out(tmp_path):
    model = DDP.GPT(DDP.GPTConfig(**TINY))
    weights.save(tmp_path, model.config, model.state_dict(), {})
    assert weights.load(str(tmp_path))[0]["vocab_size"] == 50257


def test_a_gpt2_of_transformers_is_started_from(tmp_path):
    """As OpenAI's: names without a prefix, masks, and logits far below 0.

    The padding rows take next to nothing from the others.
    """
    theirs = reference_model(tied=True).eval()
    with torch.no_grad():
        theirs.transformer.wte.weight.add_(0.25)
        theirs.transformer.ln_f.bias.sub_(1)
    theirs.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = {"h.0.attn.bias": torch.ones(1, 1, 1024, 1024).tril()}
    for name, w in load_file(path).items():
        tensors[name.removeprefix("transformer.")] = w
    save_file(tensors, path, {"format": "pt"})
    V = theirs.config.vocab_size
    x, y = random_batch(V=V)
    with torch.no_grad():
        expected = theirs(x).logits
        logits, loss = model_of(tmp_path, V + 47)(x, y)
    assert expected.mean() < -20
    torch.testing.assert_close(logits[..., :V], expected, rtol=1e-4, atol=1e-3)
    more = loss - cross_entropy(expected.flatten(0, 1), y.flatten())
    assert -1e-5 < more <= math.log(1 + 47 / V) + 1e-5


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ("cut", "no model in .* \\(Error while deserializing header"),
        ("another kind", "has model_type='llama' in config.json, GPT-2 here 'gpt2'"),
        ("another size", "the model to start from has .*'n_layer': 2"),
    ],
)
def test_weights_that_cannot_be_used_are_refused_in_a_line(trouble, said, trained, tmp_path):
    config = (trained / "best" / "config.json").read_text()
    content = (trained / "best" / "model.safetensors").read_bytes()
    if trouble == "another kind":
        config = config.replace('"gpt2"', '"llama"')
    if trouble == "cut":
        content = content[:-100]
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "model.safetensors").write_bytes(content)
    model = DDP.GPT(DDP.GPTConfig(**TINY))
    with pytest.raises(BadInput, match=f"^[^\n]*{said}[^\n]*$"):
        weights.fill(model, *weights.load(str(tmp_path)))


# ------------------------------------------------------------------------------- ladder sample


def test_sample_writes_text_that_the_seed_decides(trained, monkeypatch, capsys):
    """With control characters as a terminal must not get them."""
    vocabulary = SimpleNamespace(
        encode_ordinary=lambda text: list(text.encode()),
        decode=lambda ids: bytes(ids).decode("latin-1"),
    )
    monkeypatch.setattr("ladder.commands.sample.gpt2_vocabulary", lambda: vocabulary)
    monkeypatch.setattr("ladder.show.sampling.END_OF_TEXT", 0)
    texts = []
    for seed in (1, 1, 2):
        flags = f"--tokens 20 --seed {seed} --device cpu --prompt".split()
        assert ladder(["sample", str(trained), *flags, "To be "]) == 0
        texts.append(capsys.readouterr().out)
    text, same, other = texts
    assert text == same != other and text.startswith("To be ")
    assert r"\x" in text and re.sub(r"[\n\t]", "", text).isprintable()


def test_what_is_drawn_follows_the_model():
    """Never a padding row, however likely; and of a long text the model sees the last positions."""
    model = DDP.GPT(DDP.GPTConfig(**TINY, block_size=4))
    sizes = []

    def forward(idx):
        sizes.append(idx.numel())
        logits = torch.full((*idx.shape, 50304), -100.0)
        logits[0, -1, (idx[0, -1] + 1) % 10] = 0
        logits[..., END_OF_TEXT + 1 :] = 1000
        return logits, None

    model.forward = forward
    drawn = list(sample(model, [7], 9, seed=0))
    assert drawn == [8, 9, *range(7)] and max(sizes) == 4
