"""What the scripts do on GPUs and CPUs that are not here."""

import time
from types import SimpleNamespace

import pytest
import torch
from conftest import CARDS, ROOT, SCRIPTS, load, rung

from ladder import machine
from ladder.cli import MODELS, parse_args, pick_device
from ladder.errors import BadInput
from ladder.log import read_log
from ladder.measure import matmul
from ladder.memory import baseline_batch

FLOAT16 = {"P100", "T4", "MI50"}
# B at the default T, where it is not 16; README and docs/devices.md say the same.
BATCH = {"RTX 3060 12GB": 2, "P100": 4, "T4": 4, "MI50": 4, "M3": 4, "RTX 4090": 8}


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


def test_the_largest_batch_that_fits_by_hand():
    """12 layers x 98,304 + 7,680 + 804,112 bytes a token, and 12 for each of the parameters."""
    needed = 8 * 1024 * 1_991_440 + 12 * 163_037_184
    memory = needed * 9 / 8 + 2e9
    assert baseline_batch(memory + 1e3, MODELS["gpt2"], 1024) == 8
    assert baseline_batch(memory - 1e3, MODELS["gpt2"], 1024) == 4


def test_a_matmul_is_timed_after_a_warm_up(monkeypatch):
    monkeypatch.setattr(matmul, "WARMUP_SECONDS", 0.2)
    started = time.perf_counter()
    matmul.warm_up(torch.ones(8, 8))
    assert time.perf_counter() - started >= 0.2


@pytest.mark.parametrize("number", SCRIPTS)
def test_every_script_on_a_t4(number, card, shard, tmp_path, monkeypatch, capsys):
    card("T4")

    def stop(_):  # at the first step: nothing is on the device then but the model
        raise KeyboardInterrupt

    monkeypatch.setattr(torch.nn.Module, "to", lambda model, _: model)
    monkeypatch.setattr(torch.accelerator, "synchronize", stop)
    flags = ["--model=tiny", f"--data={shard}", f"--log-dir={tmp_path}"]
    with pytest.raises(SystemExit) as end:
        load(rung(number)).main(flags)
    if number >= 14:
        units, other = ("FP8", 18) if number == 19 else ("bfloat16", 13)
        said = capsys.readouterr().err
        assert end.value.code == 2 and f"error Tesla T4 has no {units} units" in said
        assert f"run candidate {other} here" in said
        return
    assert end.value.code == 130
    log = read_log(next(tmp_path.glob("*.log")))
    found = {key: log.run[key] for key in ("device", "B", "T", "steps")}
    assert found == {"device": "Tesla T4", "B": "8", "T": "1024", "steps": "50"}
    assert log.result.get("loss_scale") == (65536 if number >= 3 else None)


@pytest.mark.parametrize(
    ("cpu", "avx512_bf16", "amx", "onednn", "half"),
    [
        ("x86_64", True, False, True, torch.bfloat16),  # EPYC from Genoa on
        ("AMD64", False, True, True, torch.bfloat16),  # as Windows calls it
        ("x86_64", False, False, True, torch.float32),  # Ice Lake: oneDNN would emulate
        ("x86_64", True, True, False, torch.float32),  # ONEDNN_MAX_CPU_ISA=AVX2
        ("aarch64", False, False, True, torch.bfloat16),  # Graviton 3
        ("arm64", False, False, None, torch.float32),  # a Mac's PyTorch has no oneDNN
    ],
)
def test_a_cpu_without_bfloat16_units_stays_in_fp32(
    cpu, avx512_bf16, amx, onednn, half, monkeypatch
):
    monkeypatch.setattr(machine.platform, "machine", lambda: cpu)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512_bf16)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: onednn is not None)
    operators = SimpleNamespace()
    if onednn is not None:
        operators._is_mkldnn_bf16_supported = lambda: onednn
    monkeypatch.setattr(torch.ops, "mkldnn", operators)
    device = torch.device("cpu")
    assert machine.half_precision(device) == half
    if half == torch.float32:
        with pytest.raises(BadInput, match="has no bfloat16 units"):
            machine.require_bf16(device)


@pytest.mark.parametrize(
    ("script", "flags", "said", "autocast"),
    [
        ("baseline.py", [], False, "off"),
        ("speedups/03_bf16_autocast.py", [], True, "off"),
        ("ddp_run.py", ["--dtype=auto"], True, "off"),
        ("ddp_run.py", ["--dtype=bfloat16"], False, "bfloat16"),
    ],
)
def test_the_note_that_autocast_stays_off_is_true(
    script, flags, said, autocast, run_main, monkeypatch
):
    monkeypatch.setattr(machine, "_cpu_has_bf16", lambda: False)
    if script == "ddp_run.py":
        flags = [*flags, "--no-compile", "--total-batch=128", "--eval-every=0", "--ckpt-every=0"]
    log = run_main(load(ROOT / script), "--steps", 2, *flags)
    assert ("autocast stays off" in " ".join(log.notes)) == said
    assert log.effective["autocast"] == autocast
