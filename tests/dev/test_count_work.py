"""dev/count_work.py: work.json is what it counts."""

from collections import Counter

import count_work
import pytest
import torch
from helpers import load, rung
from torch._inductor.graph import GraphLowering
from torch._subclasses.fake_tensor import FakeTensorMode

from ladder.measure.scripts import rungs_for
from ladder.measure.work import counted, work

RUNGS = {path.stem: path for path in rungs_for("cpu")}


def test_work_json_has_the_counts_of_the_code_that_stands_here():
    """Else: python dev/regenerate.py."""
    for device, counts in counted().items():
        assert [*counts] == [path.stem for path in rungs_for(device)]
        for stem, found in counts.items():
            assert found["code"] == count_work.fingerprint(RUNGS[stem]), (device, stem)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "stem"), [("cuda", "10_fused_adamw"), ("cpu", "12_causal_blocks")]
)
def test_work_json_is_what_a_recount_gives(device, stem):
    """On torch 2.9 and 2.13 to the last byte; 2.15 fuses one small operator less."""
    known, again = dict(counted()[device][stem]), count_work.count(RUNGS[stem], device)
    del known["code"]
    assert again.keys() == known.keys()
    for kind, numbers in known.items():
        exact = kind not in ("other_bytes", "kernels")
        assert again[kind] == (numbers if exact else pytest.approx(numbers, rel=0.002)), kind


@pytest.mark.slow
def test_the_bytes_of_candidates_are_those_of_their_page():
    """candidates/README.md and the docstrings: gigabytes between the matmuls, B=64, T=1024."""
    assert work(64)["10_fused_adamw"]["other_bytes"] / 1e9 == pytest.approx(121.0, rel=0.002)
    for number, gigabytes in {13: 114.4, 14: 96.1}.items():
        fixed, per_row = count_work.count(rung(number))["other_bytes"]
        # Torch 2.15 fuses one small operator less.
        assert (fixed + 64 * per_row) / 1e9 == pytest.approx(gigabytes, rel=0.002), number


@pytest.mark.slow
def test_the_compiler_counts_more_bytes_between_matmuls(monkeypatch):
    """docs/measuring.md says these megabytes, forward and backward: Inductor's and ours."""
    module = load(rung(6))
    config = module.GPTConfig(n_layer=2)
    autocast = torch.autocast("cpu", torch.bfloat16)
    ours = []
    with FakeTensorMode():
        x = torch.zeros(2, 1024, dtype=torch.int64)
        for graph in count_work.graphs(module.GPT(config), x, x, autocast):
            counter = count_work.Operators("cpu")
            count_work.count_graph(graph, counter)
            ours.append(counter.work)
    theirs = []
    compile_graph = GraphLowering.compile_to_module

    def count_too(graph):
        compiled = compile_graph(graph)
        found = Counter()
        for node in graph.scheduler.nodes:
            found[node.is_extern()] += node.get_read_write_buffers_sizes()
        theirs.append(found)
        return compiled

    monkeypatch.setattr(GraphLowering, "compile_to_module", count_too)
    monkeypatch.setattr(torch._inductor.config, "force_disable_caches", True)
    torch._dynamo.reset()
    x = torch.zeros(2, 1024, dtype=torch.int64)
    with autocast:
        _, loss = torch.compile(module.GPT(config))(x, x)
    loss.backward()
    for one, other, megabytes in zip(ours, theirs, [(689, 977), (1402, 1649)], strict=True):
        assert one["linear_bytes"] + one["attention_bytes"] == other[True]
        assert round(one["other_bytes"] / 1e6) == megabytes[0]
        if torch.__version__.startswith("2.13."):
            assert round(other[False] / 1e6) == megabytes[1]
