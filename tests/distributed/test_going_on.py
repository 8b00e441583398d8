"""Going on: after a text got a new name, after the last step, and in an environment left over."""

import re

import numpy as np
import pytest
from helpers import SMALL, load, write_shard

from ladder import ranks
from ladder.checkpoint import checkpoints
from ladder.commands.main import main as ladder
from ladder.files import ROOT


def log_of(folder):
    """The newest log, which need not have a RESULT."""
    newest = max((folder / "runs").glob("*.log"), key=lambda path: path.stat().st_mtime_ns)
    return newest.read_text()


@pytest.mark.parametrize("splits", [False, True])
def test_a_text_may_be_renamed_and_moved_but_not_changed(
    splits, shard, smaller, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    main = load(ROOT / "ddp_run.py").main
    common = [*SMALL, "--no-compile", "--total-batch", "128", "--ckpt-dir", "ck"]

    def run(data, *flags):
        try:
            main([*common, "--data", str(data), *flags])
        except SystemExit as end:
            return end.code, capsys.readouterr().err
        return 0, capsys.readouterr().out

    first = tmp_path / "mine"
    first.mkdir()
    names = ("a_train_000000.bin", "a_val_000000.bin") if splits else ("a.bin",)
    for name in names:
        (first / name).write_bytes(shard.read_bytes())
    assert run(first, "--steps", "2")[0] == 0
    moved = first.rename(tmp_path / "renamed")
    for name in names:
        (moved / name).rename(moved / name.replace("a", "topics", 1))
    status, out = run(moved, "--steps", "3", "--resume")
    assert status == 0 and "resumed after step 2" in out
    write_shard(next(moved.glob("*.bin")), np.arange(9000, dtype=np.uint16) % 256)
    status, err = run(moved, "--steps", "4", "--resume")
    assert status == 2 and re.search("saved with data renamed .*, this run has renamed ", err)


@pytest.mark.parametrize("script", ["ddp_run.py", "fsdp_run.py"])
def test_what_has_ended_is_validated_and_nothing_else(script, alone, tmp_path, capsys):
    module = load(ROOT / script)
    flags = ["--ckpt-every", 2, "--resume"]
    assert alone("--ckpt-every", 2, "--eval-every", 0, module=module)[0] == 0
    folder = tmp_path / "ckpt"
    before = {path: path.stat().st_mtime_ns for path in checkpoints(folder)}
    assert ladder(["sample", str(folder)]) == 2
    how = "its command with --resume --eval-every 1 saves best/"
    assert capsys.readouterr().err == f"error the run of {folder} was never validated: {how}\n"

    status, out, err = alone(*flags, "--eval-every", 0, module=module)
    assert (status, err) == (0, "")
    assert "note  nothing left to train: step 6 is done, --steps is 6\n" in out
    for word in ("going on", "null", "val  ", "RESULT", "compiling", "left 0"):
        assert word not in out
    status, out, _ = alone(*flags, "--eval-every", 4, module=module)
    assert status == 0 and "val   step=6 loss=" in out and "RESULT" not in out
    assert (folder / "best" / "model.safetensors").exists()
    assert {path: path.stat().st_mtime_ns for path in checkpoints(folder)} == before
    assert log_of(tmp_path) == out
    status, out, _ = alone(*flags, "--steps", 4, module=module)
    assert "nothing left to train: step 6 is done, --steps is 4\n" in out


@pytest.mark.parametrize(
    ("environment", "missing"),
    [
        ({"RANK": "0"}, "WORLD_SIZE, MASTER_ADDR, MASTER_PORT"),
        ({"WORLD_SIZE": "4"}, "RANK, MASTER_ADDR, MASTER_PORT"),
        ({"RANK": "3", "WORLD_SIZE": "4", "MASTER_PORT": "29500"}, "MASTER_ADDR"),
    ],
)
def test_half_an_environment_of_torchrun_is_refused(environment, missing, monkeypatch, capsys):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(ranks, "DISTRIBUTED", "RANK" in environment)
    monkeypatch.setattr(ranks, "WORLD", int(environment.get("WORLD_SIZE", 1)))
    with pytest.raises(SystemExit, match="2"):
        ranks.launch(print, "", [])
    said = f"error RANK or WORLD_SIZE is set in the environment, but not {missing}: unset both"
    err = capsys.readouterr().err
    assert err.startswith(said) and err.count("\n") == 1


@pytest.mark.parametrize("left_over", [{"RANK": ""}, {"WORLD_SIZE": "1"}, {"MASTER_PORT": "1"}])
def test_what_does_no_harm_is_ignored(left_over, alone, monkeypatch):
    for name, value in left_over.items():
        monkeypatch.setenv(name, value)
    assert alone("--steps", 1, "--ckpt-every", 0, "--eval-every", 0)[0] == 0
