"""`ladder climb transformers …`: its GPT-2 with the clock of the rungs."""

import pytest
from helpers import SMALL, refused, run_script

from ladder.commands import climb
from ladder.commands.main import main
from ladder.measure.rows import read_climb


@pytest.mark.slow
def test_all_train_the_same_batches_each_in_its_own_way(shard, tmp_path):
    """The real command with the tiny model."""
    folder = tmp_path / "out"
    words = ["--steps", "3", "--rounds", "1", "--data", shard, "--out", folder]
    done = run_script("-m", "ladder", "climb", "transformers", 0, 10, *SMALL, *words)
    assert done.returncode == 0, done.stderr
    # Which refuses logs that differ in B, T, steps, seed or corpus.
    _, (fast, plain, baseline, top) = read_climb(folder)
    assert fast.name == "transformers_compiled"
    assert fast.log.effective == top.log.effective
    for key in ("autocast", "compiled", "optimizer"):
        assert plain.log.effective[key] == baseline.log.effective[key]
    flops = baseline.log.mfu["flops_per_token"]  # the untied head is counted once
    assert plain.log.mfu["flops_per_token"] == flops


def test_without_transformers_one_line_says_how_to_get_it(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(climb, "find_spec", lambda name: None)
    line = refused(capsys, "climb", "transformers", "--out", tmp_path / "out")
    assert "pip install -e '.[transformers]'" in line


def test_rows_are_compared_with_transformers_if_it_is_the_first(monkeypatch):
    given = []
    monkeypatch.setattr(climb, "begin_and_run", lambda args, kind, chosen: given.append(kind))
    main(["climb", "transformers", "0"])
    main(["climb", "0", "transformers"])
    assert given == ["transformers", "climb"]
