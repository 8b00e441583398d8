"""`ladder peers`: transformers' GPT-2 with the clock of the rungs."""

import argparse
import re

import pytest
from conftest import SMALL
from test_climb import ladder

from ladder import peers
from ladder.errors import BadInput
from ladder.log import read_log
from ladder.results import read_climb

ORDER = ["transformers_compiled", "transformers_fp32", "baseline"]
ORDER += ["10_fused_adamw", "12_causal_blocks"]


@pytest.fixture(scope="module")
def finished(shard, tmp_path_factory):
    """The real command with the tiny model: its folder and what it printed."""
    folder = tmp_path_factory.mktemp("peers") / "out"
    words = ["--steps", "3", "--repeats", "1", "--data", shard, "--out", folder]
    done = ladder("peers", *SMALL, *words)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_the_last_line_is_the_ratio_of_the_logs(finished):
    folder, printed = finished
    rates = {}
    for stem in ("transformers_compiled", "12_causal_blocks"):
        rates[stem] = read_log(folder / f"{stem}.r1.log").result["tok_per_s"]
    ratio = rates["12_causal_blocks"] / rates["transformers_compiled"]
    last = printed.strip().splitlines()[-1]
    assert re.fullmatch(r"RATIO top/transformers \d+\.\d\d", last)
    assert float(last.split()[-1]) == pytest.approx(ratio, abs=0.011)


def test_all_five_train_the_same_batches_each_in_its_own_way(finished):
    folder, _ = finished
    _, rows = read_climb(folder)  # which refuses logs that differ in B, T, steps, seed, corpus
    assert [row.stem for row in rows] == ORDER
    found = {row.stem: row.logs[1].effective for row in rows}
    plain, fast = found["transformers_fp32"], found["transformers_compiled"]
    assert (plain["autocast"], plain["compiled"], plain["optimizer"]) == ("off", "no", "for-loop")
    assert (fast["autocast"], fast["compiled"]) == ("bfloat16", "yes")
    assert (fast["attention"], fast["optimizer"]) == ("flash", "fused")
    params = {row.stem: row.logs[1].run["params"] for row in rows}
    assert params["transformers_fp32"] == params["transformers_compiled"]
    sizes = {row.stem: int(row.logs[1].mfu["flops_per_token"]) for row in rows}
    assert sizes["transformers_fp32"] == sizes["baseline"]  # the untied head is counted once


def test_a_peer_that_fails_leaves_no_ratio(tmp_path, monkeypatch, capsys):
    """--batch-size 0 is refused by every script."""
    args = parsed("--out", tmp_path / "out", "--repeats", 1)
    args.batch_size = 0
    monkeypatch.setattr("ladder.climb.measure_peak", lambda device: {"peak_flops": None})
    assert peers.run(args) == 1
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert last.startswith("RATIO top/transformers unknown: ")


def test_without_transformers_one_line_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"pip install -e '\.\[peers\]'"):
        peers.run(parsed("--out", tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def parsed(*words):
    parser = argparse.ArgumentParser()
    peers.add_arguments(parser)
    return parser.parse_args([*SMALL, *map(str, words)])
