"""`ladder roofline`, and the counts behind it."""

import math
import re
import shlex
from fractions import Fraction

import pytest
from conftest import ROOT, load

from ladder.commands import roofline
from ladder.commands.main import main
from ladder.machine import DATA_SHEETS, find_gpu
from ladder.measure.scripts import all_scripts, cpu_only
from ladder.measure.work import counted, roofline_ms, roofline_of, work
from ladder.show.docstrings import docstring
from ladder.show.reported import reported_gpus, roofline_fraction

RUNGS = {path.stem: path for path in all_scripts()}
PAGE = (ROOT / "docs" / "roofline.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def count_work():
    return load(ROOT / "dev" / "count_work.py")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "stem"),
    [
        ("cuda", "baseline"),
        ("cuda", "03_bf16_autocast"),
        ("cuda", "10_fused_adamw"),
        ("cpu", "12_causal_blocks"),
    ],
)
def test_work_json_is_what_a_recount_gives(device, stem, count_work):
    """On torch 2.9 and 2.13 to the last byte; 2.15 fuses one small operator less."""
    known, again = counted()[device][stem], count_work.count(RUNGS[stem], device)
    assert again.keys() == known.keys()
    for kind, numbers in known.items():
        exact = kind not in ("other_bytes", "kernels")
        assert again[kind] == (numbers if exact else pytest.approx(numbers, rel=0.002)), kind


def test_work_json_has_every_rung_that_counts():
    assert list(counted()["cuda"]) == [stem for stem in RUNGS if not cpu_only(RUNGS[stem])]
    assert list(counted()["cpu"]) == list(RUNGS)


def test_flops_are_those_of_the_formula():
    """Six per parameter of a matmul and token; twelve per pair of query, key and channel."""
    tokens, layers, C = 16 * 1024, 12, 768
    step = work(16)["baseline"]
    assert step["linear_flops"] == 6 * (12 * layers * C**2 + 50257 * C) * tokens
    assert step["attention_flops"] == 12 * layers * C * 1024 * tokens
    flash = work(16)["06_flash_attention"]["attention_flops"]
    assert flash == step["attention_flops"] / 2 * 7 / 6  # half of it, and QK^T once again
    cpu = {stem: step["attention_flops"] for stem, step in work(4, "cpu").items()}
    assert cpu["baseline"] == step["attention_flops"] / 4 / 16  # T² is a 16th
    assert cpu["06_flash_attention"] == cpu["baseline"] * 7 / 6  # masked afterwards


def test_docstrings_say_what_is_counted():
    """What they say of bytes and FLOPs follows from work.json."""
    words = [" ".join(docstring(path).split()) for path in RUNGS.values()]
    steps = list(work(16).values())
    fixed = list(work(0).values())
    cpu = work(4, "cpu")

    def scores(step, size):  # of a layer: moved six times, and twelve tensors of (B, T, C)
        return (step["attention_bytes"] / 12 - 12 * 16 * 1024 * 768 * size) / 6 / 1e6

    def less(kind, above, below, steps=fixed):
        return steps[above][kind] - steps[below][kind]

    clipping = less("optimizer_bytes", 8, 7)
    single = fixed[9]["optimizer_bytes"] - clipping
    fused = fixed[10]["optimizer_bytes"] - clipping
    padding = less("linear_flops", 7, 6, steps)
    padding /= steps[6]["linear_flops"] + steps[6]["attention_flops"]
    blocks = cpu["12_causal_blocks"]["attention_flops"] / 6  # products, forward and backward
    blocks /= cpu["11_keep_memory"]["attention_flops"] / 7
    a100 = find_gpu("NVIDIA A100-SXM4-80GB")._asdict()
    ms = [round(sum(roofline_ms(step, a100))) for step in steps[:7]]
    for number, said in [
        (0, f"= {scores(steps[0], 4):.0f} MB a layer"),
        (0, f"the {ms[0]} ms that `ladder roofline` calculates"),
        (1, f"= {less('optimizer_bytes', 0, 1) / 1e9:.1f} GB a step"),
        (1, f"two reads and a write of {less('other_bytes', 1, 0) / 3e6:.0f} MB"),
        (2, f"roofline falls from {ms[1]} to {ms[2]} ms"),
        (3, f"= {less('other_bytes', 3, 2) / 1e9:.1f} GB"),
        (3, f"Of an A100's {ms[2]} ms"),
        (5, f"roofline falls from {ms[4]} to {ms[5]} ms"),
        (6, f"{scores(steps[5], 2):.0f} MB a layer in bfloat16"),
        (6, f"roofline from {ms[5]} to {ms[6]} ms"),
        (7, f"for {padding:.2%} more FLOPs a step".replace("%", " %")),
        (8, f"pass over {clipping / 3e6:.0f} MB of gradients"),
        (8, f"two reads and a write, {clipping / 1e9:.1f} GB"),
        (10, f"= {fused / 1e9:.1f} GB"),
        (10, f"read or write {7 * single / fused:.0f} numbers per parameter"),
        (12, f"saves {Fraction(1 - blocks)} of the work at T=256"),
    ]:
        assert said in words[number], said


def test_products_in_docstrings_are_right():
    product = re.compile(r"((?:[\d.]+M?(?: bytes)? x )+[\d.]+M?)(?: bytes)? = ([\d.]+) (MB|GB)")
    found = []
    for path in RUNGS.values():
        found += product.findall(" ".join(docstring(path).split()))
    for factors, result, unit in found:
        terms = factors.replace("M", "e6").replace(" bytes", "").split(" x ")
        value = math.prod(map(float, terms)) / {"MB": 1e6, "GB": 1e9}[unit]
        decimals = len(result.partition(".")[2])
        assert f"{value:.{decimals}f}" == result, factors
    assert len(found) == 5


def test_the_roofline_of_the_baseline_by_hand():
    """19.5 TFLOP/s and 2039 GB/s: all matmuls are bound by the rate, the rest by the bandwidth."""
    step = work(16)["baseline"]
    parts = roofline_ms(step, find_gpu("NVIDIA A100-SXM4-80GB")._asdict())
    optimizer = 163.04e6 * 80  # 20 words of 4 bytes each
    matmuls = [12144 / 19.5, 1855 / 19.5]  # GFLOP
    by_hand = [*matmuls, step["other_bytes"] / 2039e6, optimizer / 2039e6]
    assert parts == pytest.approx(by_hand, rel=1e-3)


CPU = {"peak_flops": 1e12, "peak_dtype": "bfloat16", "fp32_flops": 2e11, "copy_bytes_per_s": 2e10}
L4, T4 = ({"device": device, "T": "1024"} for device in ("NVIDIA L4", "Tesla T4"))


@pytest.mark.parametrize(
    ("stem", "facts", "run", "parts"),
    [
        ("12_causal_blocks", CPU, {}, ("cpu", "half", 1e12, 2e10)),
        ("02_tf32", CPU, {}, ("cpu", "tf32", 2e11, 2e10)),
        ("02_tf32", {}, L4, ("cuda", "tf32", find_gpu("NVIDIA L4").tf32 * 1e12, 300e9)),
        ("02_tf32", CPU, {"T": "1024"}, None),  # a CPU's is counted at T=256
        ("12_causal_blocks", {}, L4, None),  # not on a GPU
        ("02_tf32", {}, T4, ("cuda", "tf32", 8.1e12, 320e9)),  # FP32's rate: it has no such units
        ("03_bf16_autocast", {}, T4, ("cuda", "half", 65e12, 320e9)),  # float16
    ],
)
def test_the_roofline_of_a_step_in_a_climb(stem, facts, run, parts):
    run = {"device": "AMD EPYC (2 threads)", "model": "gpt2", "B": "4", "T": "256"} | run
    found = roofline_of(stem, run, facts)
    if parts is None:
        assert found is None
        return
    device, unit, flops, bandwidth = parts
    step = work(4, device)[stem]
    assert step["unit"] == unit and found[0] == pytest.approx(step["linear_flops"] / flops * 1e3)
    memory = [step[f"{part}_bytes"] / bandwidth * 1e3 for part in ("other", "optimizer")]
    assert found[2:] == pytest.approx(memory)


def test_every_gpu_has_a_source_and_one_set_of_rates():
    for gpu in DATA_SHEETS.values():
        assert gpu.source.startswith(("https://", "calculated: "))
        assert all(other == gpu for other in DATA_SHEETS.values() if other.name == gpu.name)
        assert gpu.dtype in ("bfloat16", "float16") and gpu.half > 0
        known = (gpu.fp32, gpu.tf32, gpu.memory)
        assert not gpu.bandwidth or None not in known, gpu
        if gpu.dtype == "float16":
            assert gpu.tf32 == gpu.fp32  # no such units
        if gpu.source.startswith("calculated"):
            sm, flop, ghz = map(float, re.findall(r"[\d.]+", gpu.source))
            assert sm * flop * ghz / 1e3 == pytest.approx(gpu.half, abs=0.051), gpu
            assert gpu.note
            if flop == 512:  # a GeForce
                part = 2 if gpu.dtype == "bfloat16" else 4
                assert gpu.fp32 == pytest.approx(gpu.half / part, abs=0.051), gpu


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-32GB", "V100 SXM2 32GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM 80GB"),
        ("NVIDIA GeForce RTX 3080 Ti", "RTX 3080 Ti"),
        ("NVIDIA GeForce RTX 3080 Ti Laptop GPU", "RTX 3080 Ti Laptop"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "RTX 4070 Ti SUPER"),
        ("NVIDIA GeForce RTX 5060 Laptop GPU", None),  # not in the table
        ("NVIDIA GeForce RTX 4090 D", None),  # another chip
        ("NVIDIA GeForce RTX 2070 with Max-Q Design", None),
        ("NVIDIA GeForce RTX 2070 Super", None),  # a laptop's
    ],
)
def test_a_gpu_is_found_by_the_name_that_its_driver_gives(driver, name):
    gpu = find_gpu(driver)
    assert (gpu and gpu.name) == name


@pytest.mark.parametrize(
    ("driver", "name"), [("NVIDIA A100-PCIE-40GB", "A100 40GB"), ("no such GPU", None)]
)
def test_the_gpu_of_this_machine(monkeypatch, driver, name):
    monkeypatch.setattr(roofline, "first_line", lambda *words: driver)
    gpu = roofline.here()
    assert (gpu and gpu.name) == name


def test_a_gpu_is_found_by_some_of_its_words():
    assert roofline.find("a100 sxm").name == "A100 SXM 80GB"
    assert roofline.find("rtx 4090").name == "RTX 4090"  # and not the laptop's


def test_the_commands_of_its_docstring_work(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    commands = re.findall(r"^ +ladder (roofline.*)", roofline.__doc__, re.MULTILINE)
    for command in [*commands, "roofline --gpu T4"]:
        assert main(shlex.split(re.split("  +", command)[0])) == 0, command
    said = capsys.readouterr().out
    # At the nearest B, the same B, and the middle half of all.
    for words in ("B=32, 203,910 tok/s", "B=64, 466,440 tok/s", "No report of this GPU"):
        assert words in said
    # 16,384 tokens x (6 x 123.6M parameters + 12 x 12 x 768 x 1024)
    assert "00 baseline           14.00 fp32" in said
    for share in ("72", "64", "73 to 59"):
        assert said.count(f"at {share} %") == 1


@pytest.mark.parametrize(
    ("gpu", "largest"), [("RTX 4090", 8), ("T4", 4), ("RTX 3070", 1), ("A100 40GB", 16)]
)
def test_a_batch_that_does_not_fit_is_told(gpu, largest, capsys):
    note = f" GB up to about B={largest}\n"
    for B, told in ((largest, False), (2 * largest, True)):
        assert main(["roofline", "--gpu", gpu, "--batch-size", str(B)]) == 0
        assert (note in capsys.readouterr().out) == told


def test_a_card_that_is_too_small_is_told(capsys):
    assert main(["roofline", "--gpu", "RTX 2060", "--batch-size", "1"]) == 0
    assert "the baseline does not fit its 6 GB even with B=1" in capsys.readouterr().out


def test_a_reported_step_is_its_batches_and_one_optimizer():
    """On an A100 at B=32: TFLOP that a batch multiplies, GB between that, and of AdamW."""
    row = {"B": 32, "micro_steps": 16, "ms_a_step": 2571.18}
    by_hand = (16 * (26.459 / 312 + 61.306 / 2039) + 4.979 / 2039) / 2.57118
    fraction = roofline_fraction(row, find_gpu("NVIDIA A100-SXM4-80GB")._asdict())
    assert fraction == pytest.approx(by_hand, 1e-4)


def test_docs_show_what_it_prints(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["roofline", "--gpu", "A100 SXM"]) == 0
    printed = {line.rstrip() for line in capsys.readouterr().out.splitlines()}
    shown = PAGE.split("```\n")[1].splitlines()
    assert set(shown) <= printed | {"…"}


def test_docs_divide_the_roofline_by_what_was_reported():
    a100 = find_gpu("NVIDIA A100-SXM4-80GB")._asdict()
    rooflines = {}
    for stem, step in work(16).items():
        rooflines[stem[:2]] = sum(roofline_ms(step, a100))
    cells = re.findall(r"^ *\| (\d\d) .* \| (\d+) \| (\d+) \| (\d+ %) \|$", PAGE, re.MULTILINE)
    assert len(cells) == 5
    for rung, calculated, reported, share in cells:
        ms = rooflines[rung]
        assert f"{ms:.0f}" == calculated
        assert f"{100 * ms / float(reported):.0f} %" == share


def test_docs_have_the_fastest_report_of_each_gpu():
    fastest = {row["gpu"]: row for row in sorted(reported_gpus(), key=lambda row: row["tok_per_s"])}
    for gpu, row in fastest.items():
        share = roofline_fraction(row, roofline.LISTED[gpu]._asdict())
        ms = row["ms_a_step"]
        cells = f"| {gpu} | {row['B']:.0f} | {ms * share:,.0f} | {ms:,.0f} | {share * 100:.0f} % |"
        assert cells in PAGE, cells
