"""`ladder peers`: transformers' GPT-2 with the clock of the rungs."""

import argparse
import re
import statistics

import pytest
from conftest import SMALL, rung
from test_climb import ladder

from ladder.commands import peers
from ladder.commands.results import read_climb
from ladder.commands.scripts import ROOT
from ladder.errors import BadInput
from ladder.log import read_log

ORDER = ["transformers_compiled", "transformers_fp32", "baseline"]
TOP = rung(-1).stem
ORDER += ["10_fused_adamw", TOP]


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
    names = (f"{stem}.r1.log" for stem in ("transformers_compiled", TOP))
    before, after = (read_log(folder / name).result["median_ms"] for name in names)
    last = printed.strip().splitlines()[-1]
    assert re.fullmatch(r"RATIO top/transformers \d+\.\d\d", last)
    assert float(last.split()[-1]) == pytest.approx(before / after, abs=0.006)


def test_of_several_rounds_the_ratio_is_that_of_the_pairs(monkeypatch, capsys):
    """On the published logs: README says the same number."""
    folder = ROOT / "logs" / "2026-11-21-amd-epyc-2-threads-peers"
    pairs = []
    for repeat in range(1, 6):
        names = (f"{stem}.r{repeat}.log" for stem in ("transformers_compiled", "12_causal_blocks"))
        logs = [read_log(folder / name) for name in names]
        before, after = (
            statistics.median(step["dt"] for step in log.steps[log.result["warmup_steps"] :])
            for log in logs
        )
        pairs.append(before / after)
    monkeypatch.setattr(peers, "new_folder", lambda *_: folder)
    monkeypatch.setattr(peers, "run_and_report", lambda _: 0)
    assert peers.run(parsed()) == 0
    expected = f"RATIO top/transformers {statistics.median(pairs):.2f}"
    assert capsys.readouterr().out.splitlines()[-1] == expected
    assert f"| {statistics.median(pairs):.2f}× |" in (ROOT / "README.md").read_text("utf-8")


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
    monkeypatch.setattr("ladder.commands.climb.measure_peak", lambda device: {"peak_flops": None})
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
