"""`ladder roofline`: what each part costs by hand, what it computes, and how it is timed."""

import json
import re
import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from conftest import load, rung
from torch.utils.flop_counter import FlopCounterMode

from ladder.cli import MODELS
from ladder.commands import gemm, main, roofline
from ladder.commands.roofline import GELUS, Part, measure, parts
from ladder.commands.tables import wide_console

CPU = torch.device("cpu")
B, T = 2, 32
SMALL = ["--model", "tiny", "--batch-size", str(B), "--seq-len", str(T), "--device", "cpu"]
SMALL += ["--dtype", "float32", "--seconds", "0.02"]


@pytest.fixture
def run(tmp_path, capsys):
    """run(*flags): the status of `ladder roofline`, its JSON, and what it printed."""

    def command(*flags):
        status = main(["roofline", *SMALL, "--out", str(tmp_path / "out"), *flags])
        return status, json.loads((tmp_path / "out" / "roofline.json").read_text()), capsys

    return command


@pytest.fixture(scope="module")
def tiny():
    """Rung 10's model, and the parts of its step by name."""
    script = load(rung(10))
    model = script.GPT(script.GPTConfig(**MODELS["tiny"]))
    found = parts(model, B, T, {"device": CPU, "dtype": torch.float32})
    return model, {part.name: part for part in found}


def test_bytes_and_flops_are_those_worked_out_by_hand(tiny):
    _, by_name = tiny
    fc = by_name["c_fc dX"]  # dy (64, 512) @ w (512, 128) = dx (64, 128)
    assert fc.flops == 2 * 64 * 128 * 512 == 8_388_608
    assert fc.bytes == 4 * (64 * 512 + 512 * 128 + 64 * 128) == 425_984
    # q @ k.T and scores @ v: 2·T·T·hs each and per head, half of it masked.
    flash = by_name["attention flash forward"]
    assert flash.flops == 2 * (2 * 32 * 32 * 32) * 4 * B // 2 == 524_288
    assert flash.bytes == 4 * (64 * 128) * 4  # q, k, v and y
    # wte, wpe, four blocks of 12 C² + 13 C, ln_f: seven float32 values for each weight
    weights = 50304 * 128 + 1024 * 128 + 4 * (12 * 128**2 + 13 * 128) + 2 * 128
    assert by_name["AdamW fused"].bytes == by_name["AdamW foreach"].bytes == 28 * weights
    assert by_name["cross-entropy"].bytes == 3 * 64 * 50304 * 4  # read, read and written
    calls = ("c_fc dX", "lm_head dW", "GELU tanh", "LayerNorm", "AdamW fused", "copy")
    assert [by_name[name].calls for name in calls] == [4, 1, 4, 9, 1, 0]


def test_the_command_times_all_parts_and_prints_their_rates(run, tiny, monkeypatch):
    compiled, compile = [], torch.compile

    def spy(function, dynamic):  # one for all: a minute of compiler
        compiled.append(function)
        return function if len(compiled) > 1 else compile(function, dynamic=dynamic)

    monkeypatch.setattr(torch, "compile", spy)
    monkeypatch.setattr(roofline, "at_peak", lambda device: (torch.float32, 256))
    monkeypatch.setattr(roofline, "COPIED", 2**24)
    status, found, capsys = run()
    assert len(compiled) == 4
    rows = {row["name"]: row for row in found["parts"]}
    assert status == 0 and list(rows) == list(tiny[1])
    assert (found["B"], found["T"], found["dtype"]) == (B, T, "float32")
    failed = {name for name, row in rows.items() if "failed" in row}
    assert {name.split()[1] for name in failed} <= {"cudnn", "efficient"}  # not on a CPU
    for row in (rows["c_fc dX"], rows["AdamW fused"]):
        assert row["tflop_per_s"] == pytest.approx(row["flops"] / row["ms"] / 1e9)
        assert row["gb_per_s"] == pytest.approx(row["bytes"] / row["ms"] / 1e6)

    matmuls = sum(row["calls"] * row["ms"] for row in rows.values() if row["stage"] == "matmuls")
    gelu = min(4 * rows[f"GELU {way}"]["ms"] for way in ("tanh", "sigmoid"))
    said = " ".join(capsys.readouterr().out.split())
    assert f": matmuls {matmuls:.2f} + attention " in said and f" {gelu:.2f} + LayerNorm" in said


def test_the_matmuls_are_those_of_a_whole_step(tiny):
    model, by_name = tiny
    with FlopCounterMode(display=False) as counter:
        x = torch.zeros(B, T, dtype=torch.int64)
        model(x, x)[1].backward()
    counted = counter.get_flop_counts()["Global"]
    matmuls = [part for part in by_name.values() if part.stage == "matmuls"]
    by_arithmetic = sum(part.flops * part.calls for part in matmuls)
    of_linears = sum(n for op, n in counted.items() if str(op) in ("aten.mm", "aten.addmm"))
    assert by_arithmetic == of_linears > 0
    shapes = {"forward": (64, 512), "dX": (64, 128), "dW": (512, 128)}
    for part in matmuls:  # and each does what it says
        with FlopCounterMode(display=False) as counter:
            result = part.make()()
        assert counter.get_total_flops() == part.flops, part.name
        linear, kind = part.name.split()
        assert linear != "c_fc" or result.shape == shapes[kind]


def test_attention_has_the_inputs_and_gradients_of_the_model(tiny):
    _, by_name = tiny
    forward, backward = (by_name[f"attention math {way}"].make() for way in ("forward", "backward"))
    assert forward().shape == (B, 4, T, 32)
    gradients = backward()
    assert [g.shape for g in gradients] == [(B, 4, T, 32)] * 3
    assert all(g.abs().sum() > 0 for g in gradients)
    backward()  # again and again


def test_both_ways_to_compute_gelu_are_one_function():
    x = torch.linspace(-6, 6, 1001, dtype=torch.float64)
    torch.testing.assert_close(GELUS["tanh"](x), GELUS["sigmoid"](x))


ALONE = Part("AdamW", "", "alone", 1, 0, 10, lambda: int)


def test_the_time_is_the_median_without_the_first_quarter(monkeypatch):
    times = iter([9.0] * 3 + [2.0, 1.0] * 4 + [1.0])
    monkeypatch.setattr(roofline, "seconds", lambda call, device: (next(times), 0))
    monkeypatch.setattr(roofline.time, "perf_counter", iter(range(20)).__next__)
    assert measure(ALONE, CPU, 13)["ms"] == 1e3 and not list(times)  # of all twelve it would be 2 s


@pytest.mark.parametrize(("device_ms", "waits"), [(0, False), (50.0, False), (2.0, True)])
def test_events_give_the_time_on_cuda_and_the_clock_elsewhere(monkeypatch, device_ms, waits):
    """The device takes `device_ms` a call (0: it is a CPU); to launch it takes Python 2 ms."""
    calls, marks = [], []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.at = len(calls)

        def synchronize(self):
            marks.append(self.at)

        def elapsed_time(self, other):
            assert marks[-1] == other.at  # it was waited for
            return device_ms * (other.at - self.at)

    fake = dict(device=lambda device: nullcontext(), Event=Event)
    monkeypatch.setattr(gemm.torch, "cuda", SimpleNamespace(**fake))
    call = lambda: (calls.append(None), time.sleep(0.002))  # noqa: E731
    part = ALONE._replace(make=lambda: call)
    row = measure(part, torch.device("cuda" if device_ms else "cpu"), 0.1)
    assert row["waits_for_host"] == waits and len(calls) > 2
    assert row["ms"] == pytest.approx(device_ms) if device_ms else 2 <= row["ms"] < 1000


def test_of_several_ways_the_fastest_that_is_whole_counts(capsys):
    def row(way, kind, **more):
        names = dict(stage="attention", variant=way, name=f"attention {way} {kind}", calls=12)
        rates = dict(tflop_per_s=0.5, gb_per_s=1.0, waits_for_host=way == "math")
        return {**names, "flops": 10**9, "bytes": 10**6, **rates, **more}

    rows = [row("cudnn", "forward", ms=0.1), row("cudnn", "backward", failed="no such kernel")]
    known = dict(stage="reference", calls=0, ms=1.0)
    rows.append(row("", "", **known, tflop_per_s=2.0) | {"name": "large matmul"})
    rows.append(row("", "", **known, gb_per_s=1.25) | {"name": "copy"})
    for way, ms in (("flash", 0.5), ("math", 2.0)):
        rows += [row(way, "forward", ms=ms), row(way, "backward", ms=2 * ms)]
    facts = dict(device="GPU [x]", torch="2.13", model="gpt2", B=4, T=64, dtype="float16")
    facts["parts_in_all"] = len(rows)
    roofline.report(facts, rows, wide_console())
    printed = capsys.readouterr().out
    assert "GPU [x], torch 2.13, gpt2, B=4, T=64, float16" in printed
    assert "The fastest of each: attention flash 18.00 = 18.00 ms a step" in printed  # 12 · 1.5
    of_math = r"attention math forward +│ +12│ *1.00│0.001│ *2.000\*│ *24.00│ *0.500│ *1.0│ *80%│"
    assert re.search(of_math, printed)
    assert re.search(r"attention flash forward +│ +12│ *1.00│0.001│ *0.500│ *6.00│", printed)


def fail():
    raise RuntimeError("no such kernel\nand a long story")


def stop():
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("stage", "make", "status", "known"),
    [
        ("GELU", fail, 1, 3),
        ("attention", fail, 0, 3),  # few devices have all backends
        ("GELU", stop, 130, 1),
    ],
)
def test_what_fails_or_is_stopped_keeps_the_rest(run, monkeypatch, stage, make, status, known):
    good = ALONE._replace(name="good", make=lambda: lambda: time.sleep(0.001))
    bad = good._replace(stage=stage, name="bad", make=make)
    found = [good._replace(stage="reference", name="copy"), bad, good]
    monkeypatch.setattr(roofline, "parts", lambda *_: found)
    done, saved, capsys = run()
    assert (
        done == status
        and [row["name"] for row in saved["parts"]] == (["copy", "bad", "good"][:known])
    )
    printed = capsys.readouterr().out
    if known == 3:
        assert saved["parts"][1]["failed"] == "RuntimeError: no such kernel"
        assert "2 of 3 bad: RuntimeError: no such kernel\n" in printed and "AdamW" in printed
        assert f"{stage} failed + AdamW " in printed and "they add up to no step" in printed
    else:
        assert "stopped after 1 of 3 parts" in printed and "a step," not in printed
        assert "1 of 3 parts: they add up to no step" in printed and saved["parts_in_all"] == 3


def test_what_is_killed_keeps_the_parts_done(run, monkeypatch, tmp_path):
    def killed():
        raise SystemExit  # so that nothing is written after it

    good = ALONE._replace(make=lambda: lambda: time.sleep(0.001))
    monkeypatch.setattr(roofline, "parts", lambda *_: [good, good._replace(make=killed)])
    with pytest.raises(SystemExit):
        run()
    saved = json.loads((tmp_path / "out" / "roofline.json").read_text())
    assert len(saved["parts"]) == 1 and saved["parts_in_all"] == 2
