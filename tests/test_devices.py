"""What the scripts and commands do on GPUs that are not here, and float16 on a CPU."""

import math
import re
from contextlib import nullcontext
from functools import partial
from pydoc_data.topics import topics
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import CARDS, ROOT, load, rung
from torch.nn import functional as F

from ladder import cli, machine, ranks, run
from ladder.cli import parse_args, pick_device
from ladder.commands import count, doctor, gemm, timeit
from ladder.commands.log import read_log
from ladder.commands.scripts import all_scripts, candidate_scripts, number_of, peer_scripts
from ladder.commands.share import LINES
from ladder.errors import BadInput
from ladder.log import step_line
from ladder.run import Run
from ladder.shards import write_shard

FLOAT16 = {"P100", "V100", "T4", "RTX 2060 6GB", "MI50"}
# B at the default T; README and docs/devices.md say the same.
BATCH = {"RTX 2060 6GB": 1, "RTX 3070 8GB": 1, "RTX 3060 12GB": 2, "T4": 4, "V100": 4}
BATCH |= {"P100": 4, "MI50": 4, "Arc A770": 4, "Arc B580": 2, "Iris Xe": 2, "M3": 4}
BATCH |= {"RTX 4090": 8, "RX 7900 XTX": 8, "RTX 5090": 8}


@pytest.mark.parametrize("name", CARDS)
def test_each_card_gets_its_defaults_and_its_half_precision(name, card):
    device = card(name)
    args = parse_args("doc", [])
    assert args.device == device and pick_device(device.type) == device
    gpu = device.type != "mps"
    assert (args.steps, args.seq_len) == ((50, 1024) if gpu else (20, 256))
    assert args.batch_size == BATCH.get(name, 16)
    if name == "Iris Xe":
        with pytest.raises(BadInput, match=r"no bfloat16 units, and no FP64 units.* run baseline"):
            machine.half_precision(device)
        return
    dtype = torch.float16 if name in FLOAT16 else torch.bfloat16
    assert machine.half_precision(device) == dtype
    assert gemm.at_peak(device) == (dtype, 8192)
    if gpu:
        assert machine.device_name(device) == CARDS[name][1]
        said = doctor.about(device)
        assert said.startswith(f"{CARDS[name][1]}, ") and str(dtype).removeprefix("torch.") in said
        assert ("CUDA 12.6 alone, up to 2.14" in said) == (name in ("P100", "V100"))
        assert ("CUDA 12.8 and 13" in said) == (name == "RTX 5090")


@pytest.mark.parametrize("path", [*all_scripts(), *candidate_scripts()], ids=lambda path: path.stem)
def test_every_script_on_a_t4(path, card, shard, tmp_path, monkeypatch, capsys):
    card("T4")
    made, scaler = [], torch.amp.GradScaler
    monkeypatch.setattr(torch.amp, "GradScaler", lambda *a, **k: made.append(k) or scaler(*a, **k))

    def stop(_):  # at the first step: nothing is on the device then but the model
        raise KeyboardInterrupt

    monkeypatch.setattr(torch.nn.Module, "to", lambda model, _: model)
    monkeypatch.setattr(torch.accelerator, "synchronize", stop)
    with pytest.raises(SystemExit) as end:
        load(path).main(["--model", "tiny", "--data", str(shard), "--log-dir", str(tmp_path)])
    number = number_of(path)
    if number >= 14:
        units, other = ("FP8", 19) if number == 20 else ("bfloat16", 13)
        said = capsys.readouterr().err
        assert end.value.code == 2 and f"error Tesla T4 has no {units} units" in said
        assert f"run candidate {other} here" in said
        return
    assert end.value.code == 130
    log = read_log(next(tmp_path.glob("*.log")))
    found = {key: log.run[key] for key in ("device", "B", "T", "steps")}
    assert found == {"device": "Tesla T4", "B": "8", "T": "1024", "steps": "50"}
    assert made[1:] == ([{"enabled": True}] if number >= 3 else [])  # the first is Run's
    assert log.result.get("loss_scale") == (65536 if number >= 3 else None)


def test_what_doctor_says_of_a_t4(card, monkeypatch):
    device = card("T4")
    rates = {torch.float32: 8e12, torch.float16: 40e12}  # in bfloat16 it would be a KeyError
    monkeypatch.setattr(doctor, "matmul_flops", lambda _, dtype, n: rates[dtype])
    monkeypatch.setattr(doctor, "matmul_units", lambda _: "fp32")
    assert doctor.judge("02_tf32", device)[:2] == ("yes", "no")
    runs, helps, why = doctor.judge("03_bf16_autocast", device)
    assert (runs, helps) == ("yes", "yes") and "so float16 with a scaler: a float16 matmul" in why

    seen, ones, attend = [], torch.ones, F.scaled_dot_product_attention

    def attention(q, *others, **how):
        seen.append(q.dtype)
        if not torch.backends.cuda.mem_efficient_sdp_enabled():
            raise RuntimeError("No available kernel. Aborting execution.")
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return attend(q, *others, **how)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "ones", lambda *size, device, **how: ones(*size, **how))
        patch.setattr(F, "scaled_dot_product_attention", attention)
        runs, helps, why = doctor.judge("06_flash_attention", device)
        assert (runs, helps) == ("yes", "yes") and set(seen) == {torch.float16}
        assert why.startswith("the memory-efficient kernel runs")
        helps, why = doctor.judge("06_flash_attention", card("M3"))[1:]
        assert helps == "unknown" and "torch computes it with separate operators here" in why
        assert seen.pop() == torch.bfloat16
    assert doctor.judge("12_causal_blocks", device)[:2] == ("yes", "no")


def test_doctor_finds_a_pytorch_without_code_for_the_gpu(card, monkeypatch):
    def ones(*size, device):
        raise torch.AcceleratorError("CUDA error: no kernel image is available for execution")

    monkeypatch.setattr(torch, "ones", ones)
    runs, _, why = doctor.judge("baseline", card("V100"))
    assert runs == "no" and why.startswith("this PyTorch has no code for this GPU: ")


def test_doctor_compiles_and_compares_in_the_half_precision_of_the_device(monkeypatch):
    def refuse(device):
        raise BadInput("no half precision here")

    monkeypatch.setattr(doctor, "half_precision", refuse)
    for stem in ("03_bf16_autocast", "05_torch_compile", "06_flash_attention"):
        assert doctor.judge(stem, torch.device("cpu")) == ("no", "–", "no half precision here")


@pytest.mark.parametrize(
    ("name", "backend"), [("T4", "cpu:gloo,cuda:nccl"), ("Arc B580", "cpu:gloo,xpu:xccl")]
)
def test_ranks_connect_their_gpus(name, backend, card, monkeypatch):
    card(name)
    monkeypatch.setattr(torch.xpu, "is_available", lambda: name != "T4")
    for library in ("nccl", "xccl"):
        monkeypatch.setattr(ranks.dist, f"is_{library}_available", lambda: True)
    monkeypatch.setattr(ranks.dist, "rendezvous", lambda _: iter([(None, 0, 1)]))
    asked = []
    monkeypatch.setattr(ranks.dist, "init_process_group", lambda *name, **_: asked.extend(name))
    ranks.meet()
    assert asked == [backend]


def test_the_clock_of_an_amd_gpu_comes_from_pytorch(card, monkeypatch):
    device, asked = card("MI300X"), []
    monkeypatch.setattr(torch, "randn", lambda *_, dtype, **__: asked.append(dtype))
    monkeypatch.setattr(gemm, "keep_busy", lambda *_: asked.append("busy"))
    monkeypatch.setattr(torch.cuda, "power_draw", lambda _: 700_400)
    monkeypatch.setattr(torch.cuda, "clock_rate", lambda _: 2100)
    assert gemm.clocks(device) == "clocks.sm 2100 MHz, power.draw 700 W"
    assert asked == [torch.bfloat16, "busy"]

    def without_amdsmi(_):
        raise ModuleNotFoundError("amdsmi not found")

    monkeypatch.setattr(torch.cuda, "power_draw", without_amdsmi)
    assert gemm.clocks(device) == "unknown"


def test_an_intel_gpu_that_does_not_start_and_one_too_many(card, monkeypatch):
    card("Arc B580")
    with pytest.raises(BadInput, match="--device xpu:1: this PyTorch sees 1 XPU devices"):
        pick_device("xpu:1")
    monkeypatch.setattr(torch.xpu, "get_device_properties", lambda _: 1 / 0)
    with pytest.raises(BadInput, match="--device xpu: XPU does not start: division by zero"):
        pick_device("xpu")


# -------------------------------------------------------------------- bytes by counting tensors


def kept_bytes(number: int, B: int, T: int) -> int:
    """What a rung's forward pass keeps for the backward pass, of two layers, on fake tensors."""
    module = load(rung(number))
    autocast = count.CudaAutocast() if number >= 3 else nullcontext()
    kept = []

    def keep(tensor):
        kept.append(tensor)
        return tensor

    with count.FakeTensorMode():
        model = module.GPT(module.GPTConfig(n_layer=2))
        x, y = torch.zeros(2, B, T, dtype=torch.int64)
        if number >= 5:
            forward, _ = count.graphs(model, x, y, autocast)
            out = next(node for node in forward.nodes if node.op == "output").args[0]
            kept = [node.meta["val"] for node in out if node is not None]
        else:
            with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), autocast:
                logits, _ = model(x, y)
            keep(logits)  # which the script holds until the next step
        tensors = (t for t in kept if isinstance(t, torch.Tensor))
        storages = {t.untyped_storage()._cdata: t.untyped_storage() for t in tensors}
        return sum(storage.nbytes() for storage in storages.values())


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=[pytest.mark.slow] * (n >= 5)) for n in cli.KEPT]
)
def test_the_bytes_of_a_row_are_those_that_its_forward_pass_keeps(number, monkeypatch):
    """Without what the loss takes meanwhile; weights, which every row shares, fall out."""
    monkeypatch.setitem(cli.MODELS, "two", dict(n_layer=2, n_head=12, n_embd=768))
    T, V = 256, 50257
    row = cli.step_bytes(number, "two", 101, T) - cli.step_bytes(number, "two", 100, T)
    row -= cli.KEPT[number][3] * V * T
    assert row == pytest.approx(kept_bytes(number, 2, T) - kept_bytes(number, 1, T), rel=0.01)


def test_the_page_of_devices_has_the_same_batches():
    """A card of so many GB has 4 % more, as they count them, and has no 0 as its default."""
    page = (ROOT / "docs" / "devices.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+) GB \| (\d+)(?:, tight)?" + r" \| (\d+)" * 3 + r" \|$", page, re.M)
    found = [[int(number) for number in row] for row in rows]
    assert [row[0] for row in found] == [6, 8, 12, 16, 24, 40, 80]
    for gigabytes, *batches in found:
        fits = [cli.largest_batch(n, "gpt2", 1024, gigabytes * 1.04e9) for n in cli.KEPT]
        assert batches == [fits[0] or 1, *fits[1:]]
    for number in cli.KEPT:
        row = cli.step_bytes(number, "gpt2", 17, 1024) - cli.step_bytes(number, "gpt2", 16, 1024)
        assert f"| {row / 1e9:.2f} GB |" in page


@pytest.mark.parametrize(("number", "times"), [(0, 24), (1, 24), (6, 24), (10, 16)])
def test_the_bytes_of_weights_and_optimizer(number, times):
    with torch.device("meta"):
        module = load(rung(number))
        model = module.GPT(module.GPTConfig())
    assert cli.step_bytes(number, "gpt2", 0, 1024) == times * sum(
        p.numel() for p in model.parameters()
    )


def test_a_full_gpu_names_the_batch_that_fits(card, shard, tmp_path, capsys, monkeypatch):
    """The same arithmetic, with the memory that is free, for the rung and the model that ran."""
    device = card("RTX 3060 12GB")
    args = SimpleNamespace(device=device, log_dir=tmp_path, batch_size=64, seq_len=1024)
    for script, model, free, said in (
        ("baseline.py", "gpt2", 12.6e9, "B=2 fits in the 12.6 GB"),
        ("speedups/06_flash_attention.py", "gpt2", 12.6e9, "B=8 fits in the 12.6 GB"),
        ("speedups/10_fused_adamw.py", "gpt2", 10.2e9, "B=8 fits"),
        ("ddp_run.py", "gpt2", 10.2e9, "B=4 fits"),
        ("baseline.py", "gpt2", 4e9, "not even B=1 fits in the 4.0 GB"),
        ("baseline.py", "gpt2-xl", 12.6e9, "not even B=1 fits"),
    ):
        args.model = model
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _, free=free: (free - 1e9, 12.6e9))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 1e9)
        with pytest.raises(SystemExit), Run(str(ROOT / script), args):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 100.00 MiB.")
        err = capsys.readouterr().err
        assert "error out of memory: try a smaller --batch-size" in err and said in err
    for script in ("my_own.py", "\u00b2\u00b3_mine.py"):  # int() refuses such digits
        with pytest.raises(SystemExit), Run(script, args):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 100.00 MiB.")
        assert capsys.readouterr().err.endswith("or --model)\n")

    def too_full(_):
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(torch.cuda, "mem_get_info", too_full)
    with pytest.raises(SystemExit), Run(str(ROOT / "baseline.py"), args):
        too_full(device)
    assert capsys.readouterr().err.startswith("error out of memory")


@pytest.mark.parametrize("name", ["Arc B580", "M3"])
def test_float16_is_refused_where_a_step_might_not_be_skipped(name, card, capsys):
    device = str(card(name))
    with pytest.raises(SystemExit) as end:
        ranks.parse("", ["--device", device, "--dtype", "float16"])
    assert end.value.code == 2 and "leave --dtype out" in capsys.readouterr().err


# ------------------------------------------------------------------------------ float16 on a CPU


@pytest.fixture
def float16(run_small, monkeypatch, tmp_path):
    """A CPU that multiplies float16, and one batch over and over."""
    monkeypatch.setattr(machine, "has_bf16", lambda _: False)
    monkeypatch.setattr(torch, "compile", lambda model, **_: model)
    text = " ".join(topics["while"].split())[:129].encode()
    write_shard(tmp_path / "batch.bin", np.frombuffer(text, np.uint8).astype(np.uint16))
    return ["--data", tmp_path / "batch.bin", "--steps"]


@pytest.mark.parametrize("number", [3, pytest.param(12, marks=pytest.mark.slow)])
def test_float16_learns_a_batch_as_fp32_does(number, float16, run_main, monkeypatch):
    module = load(rung(number))
    module.LEARNING_RATE = module.MAX_LR = 6e-3
    log = run_main(module, *float16, 40)
    assert (log.effective["autocast"], log.effective["loss_scale"]) == ("float16", "65536")
    skipped = log.result["skipped_steps"]
    assert skipped < 4 and log.result["loss_scale"] == 65536 / 2**skipped
    monkeypatch.setattr(module, "half_precision", lambda _: torch.float32)
    in_fp32 = run_main(module, *float16, 40 - skipped)
    learnt, expected = (one.steps[0]["loss"] - one.steps[-1]["loss"] for one in (log, in_fp32))
    assert learnt > 0.9 * expected > 1


def test_an_overflow_skips_the_step_and_halves_the_scale(float16, run_main, monkeypatch):
    """Gradients of up to half times 2^19 are beyond 65504: the first steps are skipped."""
    monkeypatch.setattr(torch.amp, "GradScaler", partial(torch.amp.GradScaler, init_scale=2.0**19))
    log = run_main(load(rung(10)), *float16, 12)
    skipped = log.result["skipped_steps"]
    assert 2 <= skipped <= 6 and log.result["loss_scale"] == 2 ** (19 - skipped)
    notes = [note for note in log.notes if "a gradient overflowed float16" in note]
    assert len(notes) == skipped
    assert notes[0].startswith("step 1 skipped") and "from 524288 to 262144" in notes[0]
    losses, norms = ([step[key] for step in log.steps] for key in ("loss", "norm"))
    # The batch is the same: as long as steps are skipped, so is the loss.
    assert len(set(losses[: skipped + 1])) == 1 and losses[-1] < losses[skipped]
    assert [math.isfinite(norm) for norm in norms] == [False] * skipped + [True] * (12 - skipped)
    # Nothing shows which optimizer it would have been.
    assert run_main(load(rung(3)), *float16, 3).effective["optimizer"] == "unknown"
    monkeypatch.setattr(run, "LEAST_SCALE", 2.0**18)
    with pytest.raises(SystemExit) as end:
        run_main(load(rung(10)), *float16, 12)
    assert end.value.code == 1
    for norm in (math.inf, math.nan):  # `ladder share` sends such a step too
        assert re.fullmatch(LINES["step"], step_line(0, 9, loss=1, dt=1, tok_per_s=1, norm=norm))


class NoScaler:
    """What a script does without a scaler."""

    def __init__(self, *_, **__):
        pass

    scale = staticmethod(lambda loss: loss)
    step = staticmethod(lambda optimizer: optimizer.step())
    unscale_ = update = get_scale = is_enabled = staticmethod(lambda *_: 0)


@pytest.mark.parametrize("number", [3, 8, 12])
def test_bfloat16_with_the_scaler_is_bit_for_bit_what_it_is_without(number, run_small, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda model, **_: model)
    losses = []
    for scaler in (torch.amp.GradScaler, NoScaler):
        monkeypatch.setattr(torch.amp, "GradScaler", scaler)
        log = run_small(load(rung(number)), "--steps", 5)
        assert log.effective["autocast"] == "bfloat16" and "loss_scale" not in log.result
        losses.append([step["loss"] for step in log.steps])
    assert losses[0] == losses[1]


def test_timeit_and_the_peer_take_the_half_precision_of_the_device(float16, monkeypatch, run_main):
    log = run_main(load(peer_scripts()[0]), *float16, 3)
    assert "float16" in log.effective["autocast"] and log.result["skipped_steps"] == 0
    entered, enter = [], torch.autocast.__enter__
    spy = lambda self: entered.append((self.fast_dtype, self._enabled)) or enter(self)  # noqa: E731
    monkeypatch.setattr(torch.autocast, "__enter__", spy)
    cell = {"model": "tiny", "B": 1, "T": 4, "steps": 2, "device": "cpu", "warmup": 0}
    monkeypatch.setitem(cli.MODELS, "tiny", dict(n_layer=1, n_head=2, n_embd=64))
    timeit.measure({**cell, "vocab_size": 8, "pass": "forward+backward", "precision": "autocast"})
    assert entered == [(torch.float16, True)] * 2
