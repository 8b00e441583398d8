"""dev/count_work.py: work.json is what it counts."""

import runpy

import count_work
import pytest
import torch
from torch._inductor.graph import GraphLowering
from torch._subclasses.fake_tensor import FakeTensorMode

from ladder.files import ROOT
from ladder.measure.scripts import rungs_for
from ladder.measure.work import counted, work

RUNGS = {path.stem: path for path in rungs_for("cpu")}


def test_work_json_has_the_counts_of_the_code_that_stands_here():
    """Else: python dev/regenerate.py."""
    for device, counts in counted().items():
        for stem, found in counts.items():
            assert found["code"] == count_work.fingerprint(RUNGS[stem]), (device, stem)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "stem"),
    [
        ("cuda", "10_fused_adamw"),
        ("cpu", "12_causal_blocks"),
    ],
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
    counted_gb = {}
    for name in ("13_loss_only", "14_bf16_residual", "15_sigmoid_gelu", "16_loss_with_gradient"):
        fixed, per_row = count_work.count(ROOT / "candidates" / f"{name}.py")["other_bytes"]
        counted_gb[name[:2]] = (fixed + 64 * per_row) / 1e9
    # Torch 2.15 fuses one small operator less.
    expected = {"13": 114.4, "14": 96.1, "15": 96.1, "16": 89.4}
    assert counted_gb == pytest.approx(expected, rel=0.002)
    assert work(64)["10_fused_adamw"]["other_bytes"] / 1e9 == pytest.approx(121.0, rel=0.002)


@pytest.mark.slow
def test_the_compiler_counts_more_bytes_between_matmuls(monkeypatch):
    """docs/measuring.md says these megabytes, forward and backward: Inductor's and ours."""
    script = RUNGS["06_flash_attention"]
    rung = runpy.run_path(str(script))
    config = rung["GPTConfig"](n_layer=2)
    ours = []
    with FakeTensorMode():
        x, y = torch.zeros(2, 2, 1024, dtype=torch.int64)
        on_cpu = torch.autocast("cpu", torch.bfloat16)
        for graph in count_work.graphs(rung["GPT"](config), x, y, on_cpu):
            counter = count_work.Operators("cpu")
            count_work.count_graph(graph, counter)
            ours.append(counter.work)
    theirs = []
    compile_graph = GraphLowering.compile_to_module

    def count_too(graph):
        module = compile_graph(graph)
        between, products = 0, 0
        for node in graph.scheduler.nodes:
            if node.is_extern():
                products += node.get_read_write_buffers_sizes()
            else:
                between += node.get_read_write_buffers_sizes()
        theirs.append((between, products))
        return module

    monkeypatch.setattr(GraphLowering, "compile_to_module", count_too)
    monkeypatch.setattr(torch._inductor.config, "force_disable_caches", True)
    torch._dynamo.reset()
    x = torch.zeros(2, 1024, dtype=torch.int64)
    with torch.autocast("cpu", torch.bfloat16):
        _, loss = torch.compile(rung["GPT"](config))(x, x)
    loss.backward()
    for work_of, (_, products) in zip(ours, theirs, strict=True):
        assert work_of["linear_bytes"] + work_of["attention_bytes"] == products
    assert [round(work_of["other_bytes"] / 1e6) for work_of in ours] == [689, 1402]
    if torch.__version__.startswith("2.13."):
        assert [round(between / 1e6) for between, _ in theirs] == [977, 1649]
