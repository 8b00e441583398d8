"""cli.py: the flags of every script and their defaults by device."""

import pytest
import torch
from helpers import CARDS, SMALL, fails

from ladder import machine
from ladder.cli import MODELS, parse_args, parse_train_args, pick_device
from ladder.memory import baseline_batch


def test_the_command_line_is_frozen():
    assert vars(parse_args("doc", ["--device", "cpu"])) == {
        "model": "gpt2",
        **{"steps": 20, "batch_size": 4, "seq_len": 256, "seed": 1337, "shuffle": None},
        **{"device": torch.device("cpu"), "data": None, "log_dir": "runs"},
    }


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--device", "cuda:64"], "--device cuda:64: PyTorch finds 0 such GPU(s) here, and"),
        (["--seq-len", "1025"], "--seq-len: expected a number of at least 1 and below 1025, got"),
        ([*SMALL, "--data", "/no/a\n\x1b.bin"], r"cannot read /no/a\n\x1b.bin: No such file"),
        (["--seed", str(2**64)], f"--seed: expected a number of at least 0 and below {2**63}, got"),
        (["4", "--batchsize=4"], "--help; did you mean --batch-size?)"),
        (["--local-rank=0"], "--local-rank=0 (start it with torchrun, which needs none)"),
        (["--data", "M\udcfcller"], r"argument --data: invalid path value: 'M\udcfcller'"),
        ([*SMALL, "--log-dir", "/dev/null/logs"], "error /dev/null/logs: Not a directory"),
    ],
)
def test_flags_that_make_no_sense(capsys, tmp_path, flags, words):
    if "--log-dir" not in flags:
        flags = [*flags, "--log-dir", tmp_path]
    assert words in fails(capsys, *flags)


FLOAT16 = {"P100", "T4", "MI50"}


# B at the default T, where it is not 16; docs/your-card.md says the same.
BATCH = {"RTX 3060 12GB": 4, "P100": 4, "T4": 4, "MI50": 4, "M3": 4, "RTX 4090": 8}


@pytest.mark.parametrize("name", CARDS)
def test_each_card_gets_its_defaults_and_its_half_precision(name, card):
    device = card(name)
    args = parse_args("doc", [])
    assert args.device == device and pick_device(device.type) == device
    expected = (50, 1024) if device.type == "cuda" else (20, 256)
    assert (args.steps, args.seq_len) == expected
    assert args.batch_size == BATCH.get(name, 16)
    dtype = torch.float16 if name in FLOAT16 else torch.bfloat16
    assert machine.half_precision(device) == dtype


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ["--batch-size=2", "--seq-len=64", "--total-batch=500"],
            "not a multiple of 128 tokens (world size 1 x B=2 x T=64)",
        ),
        (["--steps=20", "--warmup=21"], "--warmup 21 is beyond --steps 20: the rate would never"),
    ],
)
def test_a_schedule_that_makes_no_sense(flags, words, capsys):
    with pytest.raises(SystemExit, match="2"):
        parse_train_args("", ["--device", "cpu", *flags])
    assert words in capsys.readouterr().err


def test_two_ranks_need_two_gpus(card, monkeypatch, capsys):
    card("T4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(SystemExit, match="2"):
        parse_train_args("", [])
    said = "error --device cuda: PyTorch finds 1 such GPU(s) here, and each process takes one; try"
    assert capsys.readouterr().err.startswith(said)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "")  # is not set
    assert parse_train_args("", []).device.type == "cuda"


# 36·C bytes a layer and token, 4·V a token, 18 a parameter (16 over the ranks where it is sharded).
@pytest.mark.parametrize(
    ("gpu", "flags", "world_size", "sharded", "B"),
    [
        ("RTX 4090", ["--model", "gpt2-xl"], 4, False, 1),
        ("RTX 4090", ["--model", "gpt2-xl"], 4, True, 4),
        ("H100", [], 64, False, 8),
    ],
)
def test_the_default_batch_fits_the_card_and_divides_the_step(
    gpu, flags, world_size, sharded, B, card
):
    card(gpu)
    assert parse_train_args("", flags, world_size, sharded).batch_size == B


def test_the_largest_batch_that_fits_by_hand():
    """12 layers x 98,304 + 7,680 + 603,084 bytes a token, and 12 for each of the parameters."""
    needed = 8 * 1024 * 1_790_412 + 12 * 163_037_184
    memory = needed * 9 / 8 + 2e9
    assert baseline_batch(memory + 1e3, MODELS["gpt2"], 1024) == 8
    assert baseline_batch(memory - 1e3, MODELS["gpt2"], 1024) == 4
