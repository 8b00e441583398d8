"""A model one can keep: where a run leaves it, how long it trains, and what can be done with it."""

import json
import math
import os
import re
import shutil
import signal
import sys
import time

import numpy as np
import pytest
import torch
import transformers
from conftest import ROOT, load
from safetensors.torch import load_file, save_file
from test_ddp import EXACT, command_line, finish, job, last_log  # noqa: F401 (job is a fixture)
from test_input import signal_after_step
from test_model import TINY, reference_model

from ladder import checkpoint, ranks
from ladder.commands import export
from ladder.commands import main as ladder
from ladder.commands.log import read_log
from ladder.corpus import END_OF_TEXT, gpt2_vocabulary
from ladder.errors import BadInput
from ladder.shards import write_shard

DDP = load(ROOT / "ddp_run.py")
SHORT = ["--total-batch", 128]


def train(shard, folder, *flags, exact=EXACT):
    """ddp_run.py in this process; its log, or its exit status if that is not 0."""
    try:
        DDP.main(command_line(shard, folder, *SHORT, *flags, exact=exact))
    except SystemExit as end:
        return end.code
    return last_log(folder)


@pytest.fixture(scope="module")
def trained(shard, tmp_path_factory):
    """The folder of checkpoints of a run of six steps, validated after each two."""
    folder = tmp_path_factory.mktemp("trained")
    train(shard, folder, "--eval-every", 2, "--ckpt-every", 2)
    return folder / "ckpt"


def model_of(name, vocab_size=50304):
    """The model that ddp_run.py starts with when it is given --init NAME, whatever its tokens."""
    model = DDP.GPT(DDP.GPTConfig(**TINY, vocab_size=vocab_size))
    checkpoint.fill(model, checkpoint.stored(str(name)))
    return model


def tokens(B=2, T=65):
    return torch.randint(0, 50257, (B, T), generator=torch.Generator().manual_seed(1))


# --------------------------------------------------------------------------- what a run leaves


def test_a_run_leaves_its_model_in_a_folder_of_its_own(shard, tmp_path, monkeypatch):
    """Twice in one folder; and --resume goes on with the last of them."""
    monkeypatch.chdir(tmp_path)

    def run(*flags):
        own = command_line(shard, tmp_path, *SHORT, *flags)
        DDP.main([word for word in own if not word.startswith("--ckpt-dir")])
        return last_log(tmp_path)

    for steps in (2, 3):
        log = run("--steps", steps)
        monkeypatch.setattr(os, "getpid", lambda: 99)  # of another process in the same second
        folders = sorted(tmp_path.glob("checkpoints/*"), key=os.path.getmtime)
        kept = sorted(path.name for path in folders[-1].glob("*.pt"))
        assert kept == ["best.pt", f"step_00000{steps}.pt"]
        assert any(f"saved {folders[-1].relative_to(tmp_path)}/step" in note for note in log.notes)
    assert len(folders) == 2
    os.rename(folders[0], "checkpoints/20260101-000000-2")
    os.rename(folders[1], "checkpoints/20270101-000000-1")
    log = run("--steps", 4, "--resume", "--ckpt-every", 0)
    assert [step["step"] for step in log.steps] == [4] and "saved" not in " ".join(log.notes)
    assert len([*tmp_path.glob("checkpoints/*/*.pt")]) == 4


def test_a_restarted_job_finds_its_own_folder_and_no_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ranks, "DISTRIBUTED", True)
    own = tmp_path / "checkpoints" / f"20260101-000000-{os.getppid()}"
    other = own.with_name("20270101-000000-1")
    for folder in (own, other):
        folder.mkdir(parents=True)
    mine = tmp_path / "checkpoints" / "mine"  # a --ckpt-dir, which has no date
    mine.mkdir()
    copy = other.with_name(other.name + "-backup")
    copy.mkdir()
    for folder in (other, mine, copy):
        (folder / "step_000001.pt").touch()
    assert ranks.default_folder(True, 0) == str(own.relative_to(tmp_path))
    assert ranks.default_folder(True, None) == str(other.relative_to(tmp_path))
    (own / ".lock").touch()
    os.utime(own / ".lock", (2, 2))
    assert ranks.default_folder(True, 1) == str(own.relative_to(tmp_path))
    assert not os.path.exists(ranks.default_folder(False, 3))  # in a new container
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    (own / "step_000001.pt").touch()
    for number, folder in enumerate((other, own)):  # two time zones: the name says the wrong one
        (folder / ".lock").touch()
        os.utime(folder / ".lock", (number, number))
    assert ranks.default_folder(True, None) == str(own.relative_to(tmp_path))
    shutil.rmtree(own)
    monkeypatch.setattr(ranks, "DISTRIBUTED", True)
    assert not os.path.exists(ranks.default_folder(False, 1))
    later = other.with_name("20270101-000000-3")  # of a job that began after this one
    later.mkdir()
    for file in (later / ".lock", later / "step_000001.pt"):
        file.touch()
    # With --resume it goes on where its first start did: in the folder of an earlier job.
    assert ranks.default_folder(True, 1) == str(other.relative_to(tmp_path))


def test_of_copied_runs_the_last_is_resumed(tmp_path, monkeypatch):
    """`cp -r` gives new times, here the later one to the first; it was also resumed since."""
    monkeypatch.chdir(tmp_path)
    first, last = (tmp_path / "checkpoints" / f"20260101-00000{n}-{n}" for n in (1, 2))
    for folder in (first, last, first):
        checkpoint.choose(folder, True, {}, {}, print)
        time.sleep(0.01)
    for mtime, folder in enumerate((last, first)):
        os.utime(folder / ".lock", (mtime, mtime))
        (folder / "step_000001.pt").touch()
    assert ranks.default_folder(True, None) == str(last.relative_to(tmp_path))


@pytest.mark.parametrize("last", ["20270101-000000-1", "none yet"])
def test_to_resume_a_run_without_a_checkpoint_takes_no_other_run(
    last, tmp_path, monkeypatch, capsys
):
    """It was stopped before its first, or all others had a --ckpt-dir; a folder is named then."""
    monkeypatch.chdir(tmp_path)
    other = tmp_path / "checkpoints" / ("20260101-000000-2" if last[0] == "2" else "gpt2")
    other.mkdir(parents=True)
    if last != "none yet":
        (other.with_name(last)).mkdir()
    (other / "step_000002.pt").symlink_to("gone")  # its disk is not mounted
    assert not os.path.exists(ranks.default_folder(True, None))  # nothing to confuse it with
    (other / "step_000001.pt").touch()
    with pytest.raises(SystemExit, match="2"):
        ranks.default_folder(True, None)
    err = capsys.readouterr().err
    assert last in err and f"--ckpt-dir checkpoints/{other.name} --resume continues that" in err


def test_the_best_model_by_validation_stays_beside_the_last_two(shard, tmp_path, monkeypatch):
    """Also over a resumption, and a damaged one is written anew."""
    found = iter([3.0, 2.0, 4.0, 5.0, 2.5, 1.0, 2.25])
    monkeypatch.setattr(DDP, "evaluate", lambda *_: next(found))
    flags = ["--eval-every", 1, "--ckpt-every", 1]
    best = tmp_path / "ckpt" / "best.pt"

    def after(steps, *more):
        log = train(shard, tmp_path, *flags, "--steps", steps, *more)
        saved = checkpoint.read(best)
        assert len([*best.parent.glob("step_*.pt")]) == 2 and "optimizer" not in saved
        return saved["step"], saved["val_loss"], log

    assert after(3)[:2] == (2, 2.0)
    assert after(5, "--resume")[:2] == (2, 2.0)
    assert after(6, "--resume")[:2] == (6, 1.0)
    os.truncate(best, 1000)
    step, loss, log = after(7, "--resume")
    assert (step, loss) == (7, 2.25) and any("best.pt cannot be used" in n for n in log.notes)
    own = checkpoint.read(best)["identity"]
    for other, known in (({}, 2.25), ({"--new": None}, 2.25), ({"--model": "gpt2"}, math.inf)):
        said = []
        assert checkpoint.best_loss(best.parent, own | other, best, said.append) == known
        assert len(said) == (known == math.inf)  # before it is written over
    for path in best.parent.glob("step_*.pt"):
        path.unlink()
    assert train(shard, tmp_path, *flags) == 2  # what is left is not written over


def prepared(folder):
    """What ranks agree on before a run on the shards in `folder`, and the notes."""
    sizes = ["--device=cpu", "--batch-size=1", "--seq-len=8", "--total-batch=8", "--resume"]
    args, said = ranks.parse("", [*sizes, f"--data={folder}", f"--ckpt-dir={folder}/ckpt"]), []
    return ranks.prepare(args, said.append), "\n".join(said)


def test_a_run_that_starts_anew_has_no_best_model_yet(tmp_path):
    """It may start from other weights than that of which best.pt is left."""
    write_shard(tmp_path / "train.bin", np.arange(1000, dtype=np.uint16))
    run, _ = prepared(tmp_path)
    run.save_best(print, 2.0, step=1, model={})
    with pytest.raises(BadInput, match=r"best\.pt is of an earlier run: delete it, or"):
        checkpoint.choose(f"{tmp_path}/ckpt", False, {}, {}, print)
    run, said = prepared(tmp_path)
    why = "best.pt cannot be used (it is of an earlier start): renamed to best.pt.earlier"
    assert run.best == math.inf and why in said
    run.save(print, step=1, position=8, model={}, optimizer={}, scaler={})
    run.save_best(print, 3.0, step=1, model={})
    assert prepared(tmp_path)[0].best == 3.0
    assert checkpoint.read(tmp_path / "ckpt" / "best.pt.earlier")["val_loss"] == 2.0


def test_a_run_is_not_resumed_with_other_held_out_text(tmp_path):
    """Its losses do not compare, and what was held out would be trained on."""
    write_shard(tmp_path / "train.bin", np.arange(1000, dtype=np.uint16))
    run, _ = prepared(tmp_path)
    run.save(print, step=1, position=8, model={}, optimizer={}, scaler={})
    write_shard(tmp_path / "val.bin", np.arange(100, dtype=np.uint16))
    with pytest.raises(BadInput, match=r"was saved with held-out text gpt2 .*, this run has gpt2"):
        prepared(tmp_path)


# ------------------------------------------------------------------------------------- --hours


def test_how_many_steps_fit():
    """An hour less 2 %, less a trial of 100 s, less its 88 s beside six steps of 2 s."""
    assert ranks.steps_within(3600, 100, 2.0, 0) == (3528 - 100 - 88) // 2
    assert ranks.steps_within(3600, 100, 2.0, 1) == (3528 - 100 - 88) // 3
    assert ranks.steps_within(100, 90, 2.0, 100) < 1


@pytest.mark.slow
def test_hours_train_as_the_same_number_of_steps_does(
    shard, trained, tmp_path, monkeypatch, capsys
):
    """The trial leaves no trace, and a resumed run keeps the number, warm-up included."""
    asked = []
    monkeypatch.setattr(ranks, "steps_within", lambda *args: asked.append(args) or 6)
    flags = ["--hours", 0.5, "--ckpt-every", 3, "--resume"]
    log = train(shard, tmp_path, *flags, exact=EXACT[:-2])
    assert capsys.readouterr().out.count("starting from the beginning") == 1
    trial = read_log(min((tmp_path / "runs").glob("*.log"), key=os.path.getmtime))
    assert trial.run["steps"] == "6" and len(trial.vals) == 1
    assert any("keeps nothing" in note for note in trial.notes)
    seconds, spent, step, eval_every = asked[0]
    assert (seconds, eval_every) == (1800, 100) and spent > 6 * step > 0
    assert log.run["steps"] == "6" and any("6 steps fit" in note for note in log.notes)
    expected = [step["loss"] for step in last_log(trained.parent).steps]
    assert [step["loss"] for step in log.steps] == expected

    monkeypatch.setattr(ranks, "steps_within", lambda *_: 60)
    (tmp_path / "ckpt" / "step_000006.pt").unlink()
    log = train(shard, tmp_path, *flags, exact=EXACT[:-2])
    assert [step["loss"] for step in log.steps] == expected[3:] and log.run["steps"] == "6"
    assert any("the 6 steps of its start are kept" in note for note in log.notes)
    assert not [note for note in log.notes if "was" in note]


def test_a_warm_up_that_is_given_counts_in_a_resumed_run(trained):
    """--hours keeps the number of steps alone."""
    for given, warmup in (([], 1), (["--warmup", "3"], 3)):
        flags = ["--device=cpu", "--ckpt-dir", str(trained), "--resume", "--hours=1", *given]
        args = ranks.settle(None, ranks.parse("", flags))
        assert (args.steps, args.warmup) == (6, warmup)


@pytest.mark.slow
def test_two_ranks_agree_on_the_steps_that_fit(job, tmp_path):  # noqa: F811
    code = (
        "import ladder.ranks\n"
        "def within(seconds, spent, step, eval_every):\n"
        "    steps = 3 + int(spent * 1e6) % 97 % 5\n"  # another one for a microsecond more
        f"    folder = pathlib.Path({str(tmp_path)!r})\n"
        "    (folder / f'{RANK}.steps').write_text(f'{spent} {step}')\n"
        "    return steps\n"
        "ladder.ranks.steps_within = within\n"
        "def at(step): pass"
    )
    finish(job(tmp_path, "--hours", 1, code=code, exact=EXACT[:-2]))
    one, two = ((tmp_path / f"{rank}.steps").read_text() for rank in (0, 1))
    log = last_log(tmp_path)
    assert one == two and log.result["status"] == "ok"
    assert len(log.steps) == int(log.run["steps"])


@pytest.mark.parametrize("stop", ["too short", "SIGTERM", "SIGTERM in the sample"])
def test_a_trial_that_ends_it_leaves_no_checkpoint(stop, shard, tmp_path, monkeypatch, capsys):
    if stop == "SIGTERM":
        signal_after_step(monkeypatch, signal.SIGTERM)
    if stop == "SIGTERM in the sample":  # no step is left that could be the last
        monkeypatch.setattr(
            checkpoint, "sample", lambda *_: os.kill(os.getpid(), signal.SIGTERM) or []
        )
    status = train(shard, tmp_path, "--hours", 1e-6, exact=EXACT[:-2])
    out, err = capsys.readouterr()
    assert status == (2 if stop == "too short" else 0) and "--resume continues" not in out
    assert not list((tmp_path / "ckpt").glob("*.pt"))
    assert err.count("\n") == (status > 0) and (status == 0 or "--hours 1e-06 is too" in err)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_a_screen_that_fails_in_the_trial_does_not_end_the_run(
    shard, tmp_path, monkeypatch, capsys
):
    """It ends with status 2, as without --hours."""
    monkeypatch.setattr(sys, "stdout", open("/dev/full", "w"))  # noqa: SIM115
    monkeypatch.setattr(ranks, "steps_within", lambda *_: 3)
    assert train(shard, tmp_path, "--hours", 1, "--eval-every", 0, exact=EXACT[:-2]) == 2
    assert capsys.readouterr().err.count("the run goes on without it") == 1
    assert len(checkpoint.checkpoints(tmp_path / "ckpt")) == 1


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ("earlier run", "is of an earlier run"),
        ("no folder", "cannot write checkpoints into"),
        ("val", "token id 60000"),
    ],
)
def test_what_the_run_would_refuse_is_refused_before_the_trial(
    trouble, said, trained, tmp_path, capsys
):
    text = np.zeros(1000, np.uint16)
    for name in ("train", "val"):
        write_shard(tmp_path / f"a_{name}_0.bin", text + 60000 * (trouble == name))
    folder = {"earlier run": trained, "no folder": __file__, "val": tmp_path / "ckpt"}[trouble]
    flags = ["--hours", 1, "--ckpt-dir", folder]
    assert train(tmp_path, tmp_path, *flags, exact=EXACT[:-2]) == 2
    out, err = capsys.readouterr()
    assert said in err and "step " not in out


# ----------------------------------------------------------------------------- ladder export


@pytest.mark.parametrize("safetensors", [True, False])
def test_transformers_loads_what_is_exported(safetensors, trained, tmp_path, monkeypatch, capsys):
    """The same logits, without the padding rows; and --init takes it back, bit for bit."""
    if not safetensors:
        monkeypatch.setattr(export, "find_spec", lambda name: None)
    out = tmp_path / "out"
    assert ladder(["export", str(trained), str(out)]) == 0
    weights = "model.safetensors" if safetensors else "pytorch_model.bin"
    assert weights in capsys.readouterr().out and (out / weights).exists()
    theirs = transformers.AutoModelForCausalLM.from_pretrained(out)
    with torch.no_grad():
        expected = model_of(trained)(tokens())[0][..., :50257]
        logits = theirs(tokens()).logits
    assert theirs.training is False and logits.shape == (2, 65, 50257)
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
    best = checkpoint.read(trained / "best.pt")["model"]
    for name, weight in model_of(out).state_dict().items():
        assert torch.equal(weight[:50257], best[name][:50257]), name


def test_the_tokenizer_goes_with_it(trained, tmp_path, monkeypatch, capsys):
    if not (vocabulary := gpt2_vocabulary(5)):
        pytest.skip("no GPT-2 vocabulary")
    assert ladder(["export", str(trained), str(tmp_path / "with")]) == 0
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "with")
    text = "To be, or not to be: that is naïve.\n\n  <|endoftext|>"
    ids = vocabulary.encode(text, allowed_special="all")
    assert tokenizer(text)["input_ids"] == ids and tokenizer.eos_token_id == END_OF_TEXT
    monkeypatch.setattr(export, "tokenizer_files", dict)
    assert ladder(["export", str(trained), str(tmp_path / "without")]) == 0
    assert "no tokenizer" in capsys.readouterr().out


# ------------------------------------------------------------------------------------- --init


def of_transformers(folder, kind):
    """Their GPT-2 on disk, with logits far below 0 as OpenAI's has; the model itself."""
    theirs = reference_model(tied=True).eval()
    with torch.no_grad():
        theirs.transformer.wte.weight.add_(0.25)
        theirs.transformer.ln_f.bias.sub_(1)
    theirs.save_pretrained(folder)
    if kind == "OpenAI's":  # names without a prefix, and masks
        (folder / "model.safetensors").unlink()
        names = {n.removeprefix("transformer."): t for n, t in theirs.state_dict().items()}
        del names["lm_head.weight"]
        masks = {f"h.{i}.attn.bias": torch.ones(1, 1, 1024, 1024).tril() for i in range(4)}
        torch.save(names | masks, folder / "pytorch_model.bin")
    return theirs


@pytest.mark.parametrize("kind", ["saved", "OpenAI's"])
def test_a_gpt2_of_transformers_is_started_from(kind, tmp_path):
    """The padding rows take next to nothing from the others."""
    theirs = of_transformers(tmp_path / "gpt2", kind)
    x, y = tokens()[:, :-1], tokens()[:, 1:]
    with torch.no_grad():
        expected = theirs(x).logits
        logits, loss = model_of(tmp_path / "gpt2")(x, y)
    assert expected.mean() < -20
    torch.testing.assert_close(logits[..., :50257], expected, rtol=1e-4, atol=1e-3)
    theirs_loss = torch.nn.functional.cross_entropy(expected.flatten(0, 1), y.flatten()).item()
    assert -1e-5 < loss.item() - theirs_loss <= math.log(1 + 47 / 50257) + 1e-5


def test_integer_weights_are_no_gpt2(tmp_path):
    folder = tmp_path / "gpt2"
    of_transformers(folder, "OpenAI's")
    weights = torch.load(folder / "pytorch_model.bin")
    torch.save({k: w.to(torch.int8) for k, w in weights.items()}, folder / "pytorch_model.bin")
    with pytest.raises(BadInput, match=r"gpt2 has transformer\.\S+ as torch.int8: expected floats"):
        checkpoint.stored(str(folder))


def test_a_run_starts_from_the_best_of_another(shard, trained, tmp_path):
    """The first loss is that of the model on the first rows; a checkpoint to resume comes first."""
    flags = ["--steps", 2, "--init", trained]
    log = train(shard, tmp_path, *flags)
    batches = ranks.Batches(ranks.load_splits(str(shard), print)[0], 2, 64)
    with torch.no_grad():
        first = model_of(trained)(*next(batches))[1].item()
    assert log.steps[0]["loss"] == pytest.approx(first, abs=1e-5)
    assert not any("left out" in note for note in log.notes)
    log = train(shard, tmp_path, *flags, "--steps", 3, "--resume")
    assert [step["step"] for step in log.steps] == [3]
    assert f"--init {trained} is left out: the checkpoint has the weights" in log.notes
    with pytest.raises(BadInput, match="was trained on gpt2 tokens, this text has bytes"):
        checkpoint.start_from(str(trained), model_of(trained), "bytes")


# ------------------------------------------------------------------------------- ladder sample


def sampled(capsys, *words) -> str:
    assert ladder(["sample", *map(str, words), "--device", "cpu"]) == 0
    return capsys.readouterr().out


def test_sample_writes_text_that_the_seed_decides(trained, tmp_path, capsys):
    """From a run on bytes, so that no vocabulary is needed."""
    saved = checkpoint.read(trained / "best.pt")
    saved["identity"]["data"] = "bytes 0123"
    path = checkpoint.save(tmp_path, "bytes.pt", **saved)
    flags = (path, "--prompt", "To be ", "--tokens", 20)
    texts = [sampled(capsys, *flags, "--seed", seed) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2] and all(text.startswith("To be ") for text in texts)
    model = model_of(path)
    ids = [END_OF_TEXT, *b"To be "]
    drawn = [*checkpoint.sample(model, ids, 20, known_tokens=256, seed=1)]
    expected = "To be " + bytes(drawn).decode(errors="replace") + "\n"
    assert any(not c.isprintable() for c in expected[:-1])  # as a terminal must not get them
    assert texts[0] == "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in expected)
    assert sampled(capsys, path, "--prompt", "a\udcff", "--tokens", 1).startswith("a\ufffd")
    assert ladder(["export", str(path), str(tmp_path / "out")]) == 0
    assert checkpoint.stored(str(tmp_path / "out")).tokenizer == "bytes"


def test_what_is_drawn_follows_the_model():
    """Never a padding row, however likely; and of a long text the model sees the last positions."""

    class Model(torch.nn.Module):
        config = DDP.GPTConfig(block_size=4)

        def __init__(self):
            super().__init__()
            self.lm_head = torch.nn.Linear(1, 1)

        def forward(self, idx):
            assert idx.shape[1] <= 4
            logits = torch.full((*idx.shape, 12), -100.0)
            logits[0, -1, (idx[0, -1] + 1) % 10] = 0
            logits[..., 10:] = 1000
            return logits, None

    assert [*checkpoint.sample(Model(), [7], 9, known_tokens=10)] == [8, 9, *range(7)]


# ---------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ("nothing", "no such file or folder"),
        ("empty", "holds neither a checkpoint nor config.json"),
        ("cut", "is damaged or not a checkpoint of ddp_run.py"),
        ("activation_function=relu", "has activation_function='relu' in config.json, GPT-2 here"),
        ("model_type=llama", "has model_type='llama'"),
        ("n_layer=12", "has n_layer 12, this run 4: --model sets the size"),
        ("n_positions=2048", "has block_size 2048, this run 1024"),
        ("vocab_size=50000", "has vocab_size 50000, this run 50304"),
        ("no weights", "is not a GPT-2 that transformers saved (FileNotFoundError"),
        ("no config", "is not a GPT-2 that transformers saved (JSONDecodeError"),
        ("pickle", "is not a GPT-2 that transformers saved (UnpicklingError"),
        ("fewer", "lacks tensors of GPT-2, or has others"),
        ("rows", "lacks tensors of GPT-2, or has others"),
    ],
)
def test_weights_that_cannot_be_used_are_refused_in_a_line(trouble, said, trained, tmp_path):
    path = tmp_path / "model"
    if trouble == "cut":
        shutil.copy(trained / "best.pt", path)
        os.truncate(path, 5000)
    elif trouble != "nothing":
        path.mkdir()
    if trouble not in ("nothing", "empty", "cut"):
        config = export.config(dict(TINY, block_size=1024))
        if "=" in trouble:
            key, value = trouble.split("=")
            config[key] = int(value) if value.isdigit() else value
        text = "{" if trouble == "no config" else json.dumps(config)
        (path / "config.json").write_text(text)
        weights = checkpoint.read(trained / "best.pt")["model"]
        if trouble == "fewer":
            del weights["transformer.ln_f.bias"]
        if trouble == "rows":
            weights["transformer.wte.weight"] = torch.zeros(100, 128)
        if trouble != "no weights":
            torch.save(os.system if trouble == "pickle" else weights, path / "pytorch_model.bin")
    with pytest.raises(BadInput) as caught:
        model_of(path)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_commands_refuse_in_a_line(trained, tmp_path, shard, monkeypatch, capsys):
    (tmp_path / "there").mkdir()
    monkeypatch.setattr("ladder.commands.sample.gpt2_encoder", lambda timeout_s: None)
    for words, said in (
        (["export", trained, tmp_path / "there"], "cannot make the folder"),
        (["export", tmp_path / "none", tmp_path / "out"], "no such file or folder"),
        (["sample", tmp_path / "none"], "no such file or folder"),
        (["sample", trained], "no GPT-2 vocabulary"),
    ):
        assert ladder([str(word) for word in words]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.startswith("error ") and said in err and err.count("\n") == 1
    for name, said in (("none", "no such file or folder"), ("a" * 300, "File name too long")):
        assert train(shard, tmp_path, "--init", tmp_path / name) == 2
        assert re.fullmatch(f"error .*{said}.*\n", capsys.readouterr().err)


# --------------------------------------------------------------------------------- docs/train.md


def test_the_times_in_train_md_follow_from_ladder_limits(capsys):
    from test_docs import code_blocks, number, page, table, words

    text = page("docs/train.md").partition("## 4. How long")[2]
    for cells in table(text):
        assert ladder(["limits", "--gpu", cells[0], "--batch-size", "8"]) == 0
        shown = capsys.readouterr().out
        if "4090" in cells[0]:
            for line in filter(str.strip, code_blocks(text)[0].splitlines()):
                assert words(line) in words(shown), line
        row = words(shown.split("10 fused AdamW")[-1]).split()
        limit, optimizer = float(row[0]), float(row[4])
        for share, side in ((0.85, 0), (0.45, -1)):
            step = (64 * (limit - optimizer) + optimizer) / share / 1e3  # seconds
            rate = 524288 / step
            expected = [step, rate, 3 * 3600 * rate / 1e9, 18794 * step / 3600]
            said = [number(cell.split(" – ")[side]) for cell in cells[1:]]
            assert said == pytest.approx(expected, rel=0.02, abs=0.051), (cells, expected)


# --------------------------------------------------------------- weights that are no whole model


def test_weights_that_became_nan_are_not_saved(shard, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(DDP, "get_lr", lambda *_: math.nan)
    flags = ["--ckpt-every", 1, "--eval-every", 0]
    assert train(shard, tmp_path, *flags) == 1
    assert "is not finite after step 1: it is not saved" in capsys.readouterr().err
    assert not list((tmp_path / "ckpt").glob("step_*"))


@pytest.mark.parametrize(
    ("name", "weight", "said"),
    [
        ("evil", torch.zeros(1), "lacks tensors of GPT-2, or has others"),
        ("transformer.wte.weight", torch.zeros(50304, 128, dtype=torch.int64), "not finite"),
        ("transformer.ln_f.bias", torch.full((128,), math.nan), "not finite"),
    ],
)
def test_only_a_whole_model_is_exported_or_sampled(name, weight, said, trained, tmp_path, capsys):
    saved = checkpoint.read(trained / "best.pt")
    saved["model"][name] = weight
    path = checkpoint.save(tmp_path, "changed.pt", **saved)
    for words in (["sample", path], ["export", path, tmp_path / "out"]):
        assert ladder([str(word) for word in words]) == 2
        out, err = capsys.readouterr()
        assert out == "" and said in err and err.count("\n") == 1, err
    assert not (tmp_path / "out").exists()


def test_a_model_that_computes_nan_writes_nothing():
    model = DDP.GPT(DDP.GPTConfig(**TINY))
    torch.nn.init.constant_(model.transformer.ln_f.bias, math.nan)
    with pytest.raises(BadInput, match="NaN or infinity"):
        next(checkpoint.sample(model, [0], 1, 256))


@pytest.mark.parametrize(
    "loss", ["x", None, math.nan, -math.inf, pytest.param(10**400, id="1e400"), torch.ones(2)]
)
def test_a_best_loss_that_is_none_is_not_compared_with(loss, tmp_path):
    said = []
    checkpoint.save(tmp_path, "best.pt", identity={}, val_loss=loss)
    assert checkpoint.best_loss(tmp_path, {}, tmp_path, said.append) == math.inf
    assert "cannot be used" in said[0]
    with pytest.raises(BadInput, match="is of another version"):
        checkpoint.save(tmp_path, "best.pt", identity={}, model=torch.ones(2))
        checkpoint.stored(str(tmp_path))


@pytest.mark.parametrize("rows", [100, 60000, None])
def test_a_vocabulary_that_is_not_that_of_its_config(rows, trained, tmp_path):
    config = export.config(dict(TINY, block_size=1024))
    weights = checkpoint.read(trained / "best.pt")["model"]
    weights["transformer.wte.weight"] = torch.zeros(*((rows, 128) if rows else (50257, 128, 1)))
    torch.save(weights, tmp_path / "pytorch_model.bin")
    for V, said in (
        (50257, "lacks tensors of GPT-2, or has others"),
        ("50257", "has vocab_size '50257': expected a positive integer"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config | {"vocab_size": V}))
        with pytest.raises(BadInput, match=said):
            model_of(tmp_path)


@pytest.mark.parametrize("change", [{"n_head": 3}, {"n_positions": 10**13}, {"n_layer": 10**9}])
def test_a_config_that_does_not_fit_its_weights(change, trained, tmp_path, capsys):
    folder = tmp_path / "out"
    assert ladder(["export", str(trained), str(folder)]) == 0
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    capsys.readouterr()
    assert ladder(["sample", str(folder)]) == 2
    assert "is damaged: its weights are not of a GPT-2 with" in capsys.readouterr().err


def test_rows_and_tokens_that_are_not_gpt_2s_are_named(trained, tmp_path, capsys):
    """Of a folder of transformers: a checkpoint's own rows above 50257 are padding."""
    config, weights = tmp_path / "first" / "config.json", tmp_path / "first" / "model.safetensors"
    assert ladder(["export", str(trained), str(config.parent)]) == 0
    assert "left out" not in capsys.readouterr().out
    tensors = load_file(weights)
    tensors["transformer.wte.weight"] = torch.ones(50260, 128)
    save_file(tensors, weights)
    facts = json.loads(config.read_text()) | {"vocab_size": 50260}
    config.write_text(json.dumps(facts))
    assert ladder(["export", str(config.parent), str(tmp_path / "second")]) == 0
    assert "note  left out: the last 3 rows" in capsys.readouterr().out
    for tokenizer in ("GPT2", None, []):
        config.write_text(json.dumps(facts | {"ladder_tokenizer": tokenizer}))
        assert ladder(["sample", str(config.parent)]) == 2
        assert f"trained on tokens of {tokenizer!r}: expected" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_fifo_is_no_model(name, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(export.config(dict(TINY, block_size=1024))))
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(BadInput, match="is not a regular file"):
        checkpoint.stored(str(tmp_path))
