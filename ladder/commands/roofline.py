"""The work of each rung, counted, and the time it takes at a GPU's rates: an
estimate.

  ladder roofline                      FLOPs, bytes and kernels of a step
  ladder roofline --gpu "RTX 4070"     and its time, at the largest B that fits
  ladder roofline --gpu "H100 SXM" --batch-size 64
  ladder roofline --gpu L4 --data-sheet
                                       at NVIDIA's rates, not at measured ones

Without --gpu it takes the NVIDIA GPU of this machine, if there is one. The
work is that of GPT-2 124M at T=1024. Matmuls and attention take as long as
their rate or the bandwidth makes them, the rest as the bandwidth does; caches
are ignored. `gain` is in speed, over the rung before. The last column is the
time at the share of the roofline that others reached with rung 10: on that
GPU, else the middle half of all.
"""

from statistics import median, quantiles

from rich.table import Table

from ladder.cli import BLOCK_SIZE, MODELS, positive
from ladder.errors import UsageError
from ladder.machine import DATA_SHEETS, GPU, find_gpu, first_line
from ladder.measure.docstrings import title
from ladder.measure.rates import rates_of, source_of
from ladder.measure.scripts import rungs
from ladder.measure.work import AS_BEFORE, PARTS, roofline_ms, work
from ladder.memory import baseline_batch, ddp_batch, memory_on_sale
from ladder.show.console import new_table, screen
from ladder.show.reported import reported_gpus, roofline_fraction

TITLES = {path.stem: title(path) for path in rungs()}
NO_SCORES = "06_flash_attention"  # from here on they take no memory
PADDED = "not calculated, the compiler may pad by itself"  # of AS_BEFORE
LISTED = {gpu.name: gpu for gpu in DATA_SHEETS.values() if gpu.bandwidth}


def add_arguments(parser):
    names = f"default: this machine's; one of: {', '.join(LISTED)}"
    parser.add_argument("--gpu", type=find, help=names)
    largest = "default: the largest that fits the baseline, at most 16"
    parser.add_argument("--batch-size", type=positive, help=largest)
    sheet = "take the rates of the data sheet, not those that owners measured"
    parser.add_argument("--data-sheet", action="store_true", help=sheet)


def run(args) -> int:
    """The subcommand. Returns the exit status."""
    gpu = args.gpu or here()
    B = args.batch_size or (batch_for(gpu) if gpu else 16)
    steps = work(B)
    console = screen()
    console.width = max(console.width, 80)  # a narrower terminal wraps lines and cuts no figure
    console.say(f"One step of GPT-2 124M, B={B}, T=1024: counted, not measured")
    console.print(work_table(steps))
    if not gpu:
        console.say("note  --gpu NAME calculates the times on that card")
        return 0
    rates = rates_of(gpu, args.data_sheet)
    source = source_of(gpu, args.data_sheet)
    console.say(f"The roofline of {gpu.name} at B={B}: calculated, not measured")
    rest = "" if args.data_sheet else "; the rest by the data sheet"
    console.say(f"{in_words(gpu, rates)}\n(TFLOP/s {source}{rest})")
    if gpu.note:
        console.say(f"note  {gpu.note}")
    largest, words = what_fits(gpu)
    if largest < B:
        console.say(f"note  perhaps too little memory: {words}")
    said, shares = reported_shares(gpu.name, B, args.data_sheet)
    console.print(time_table(steps, rates, shares))
    console.say(f"{said} {percents(shares)} of the roofline")
    console.say(f"\nOver the rung before, on {gpu.name}:")
    for line in reasons(steps, gpu, rates).values():
        console.say(f"  {line}")
    return 0


def in_words(gpu: GPU, rates: dict[str, float]) -> str:
    """The rates of a GPU in words."""
    tf32 = "no tf32" if gpu.dtype == "float16" else f"tf32 {digits(rates['tf32'])}"
    flops = f"fp32 {digits(rates['fp32'])}, {tf32}, {gpu.dtype} {digits(rates['half'])} TFLOP/s"
    return f"{flops}, {gpu.bandwidth:g} GB/s, {gpu.memory:g} GB"


def digits(rate: float) -> str:
    """A rate in TFLOP/s with a decimal below 100."""
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.1f}"


def what_fits(gpu: GPU) -> tuple[int, str]:
    """The largest B at which the baseline fits a GPU, or 0; and that in words."""
    largest = baseline_batch(memory_on_sale(gpu.memory), MODELS["gpt2"], BLOCK_SIZE)
    if largest == 0:
        return 0, "it does not hold the baseline even with B=1"
    return largest, f"the largest power of two that fits the baseline is B={largest}"


def batch_for(gpu: GPU) -> int:
    """The default B on a GPU: the largest at which the baseline fits it, at most 16."""
    return max(1, min(16, what_fits(gpu)[0]))


def find(text: str) -> GPU:
    """The GPU of the table with this name, spaces left out, or the one with all these words in it.

    Raises UsageError if there is none or more than one.
    """
    words = text.lower().split()
    matches = []
    for name, gpu in LISTED.items():
        in_name = name.lower().split()
        if "".join(in_name) == "".join(words):
            return gpu
        if set(words) <= set(in_name):
            matches.append(name)
    if not matches:  # a space may be missing
        matches = [name for name in LISTED if "".join(words) in name.lower().replace(" ", "")]
    if len(matches) == 1:
        return LISTED[matches[0]]
    if matches:
        raise UsageError(f"--gpu {text} may be {', '.join(matches)}: write more of it")
    raise UsageError(f"--gpu {text} is in no data sheet here: --help lists the names")


def here() -> GPU | None:
    """The GPU of this machine, by nvidia-smi's name, if all its rates are known."""
    gpu = find_gpu(first_line("nvidia-smi", "--query-gpu=name", "--format=csv,noheader"))
    return gpu if gpu and gpu.bandwidth else None


def reported_shares(name: str, B: int, data_sheet: bool = False) -> tuple[str, list[float]]:
    """What others reported, and the shares of the roofline that they reached.

    One share of this GPU, at the nearest B; without a report of it the middle half of all GPUs.
    """
    rows = [row for row in reported_gpus() if row["gpu"] == name]
    if rows:
        row = min(rows, key=lambda row: abs(row["B"] - B))
        what = f"B={row['B']:.0f}, {row['tok_per_s']:,.0f} tok/s, nearly rung 10"
        return f"Reported elsewhere (docs/reported.md): {what}:", [share_of(row, data_sheet)]
    shares = fastest_shares(data_sheet)
    low, _, high = quantiles(shares.values())
    return f"No report of this GPU. The middle half of {len(shares)} others reached", [high, low]


def fastest_shares(data_sheet: bool = False) -> dict[str, float]:
    """The share of its roofline that each reported GPU reached, at its fastest B."""
    rows = sorted(reported_gpus(), key=lambda row: row["tok_per_s"])
    return {row["gpu"]: share_of(row, data_sheet) for row in rows}


def share_of(row: dict, data_sheet: bool = False) -> float:
    """The share of the roofline that a row of reported_gpus reached."""
    return roofline_fraction(row, rates_of(LISTED[row["gpu"]], data_sheet))


def usual_share() -> float:
    """The median of `fastest_shares`."""
    return median(fastest_shares().values())


def percents(shares: list[float]) -> str:
    """Such as `73 to 59 %`."""
    return " to ".join(f"{share * 100:.0f}" for share in shares) + " %"


def work_table(steps: dict[str, dict]) -> Table:
    """A row per rung: FLOPs by unit, bytes by what they are for, kernels."""
    heads = ("work\nTFLOP", "unit", "all\nGB", "matmul\nGB", "attn\nGB", "traffic\nGB")
    table = new_table("rung", *heads, "optim\nGB", "kernels\nabout")
    for stem, step in steps.items():
        flops = step["linear_flops"] + step["attention_flops"]
        moved = [step[f"{part}_bytes"] for part in PARTS]
        cells = [f"{flops / 1e12:.2f}", step["unit"]]
        for value in (sum(moved), *moved):
            cells.append(f"{value / 1e9:.1f}")
        table.add_row(TITLES[stem], *cells, str(step["kernels"]))
    return table


def time_table(steps: dict[str, dict], rates: dict[str, float], shares: list[float]) -> Table:
    """A row per rung: its roofline, what it gains over the rung before, its parts, an estimate.

    The estimate is the time at each of the shares.
    """
    heads = ("roofline\nms", "gain", "matmul\nms", "attn\nms", "traffic\nms", "optim\nms")
    table = new_table("rung", *heads, f"at {percents(shares).replace(' to ', '–')}\nms")
    before = None
    for stem, step in steps.items():
        if stem == AS_BEFORE:
            table.add_row(TITLES[stem], "as 06", *[""] * 5, "unknown")
            continue
        parts = roofline_ms(step, rates)
        total = sum(parts)
        cells = [f"{total:.1f}", speed_change(before, total)]
        cells += [f"{part:.1f}" for part in parts]
        guesses = []
        for share in shares:  # two digits are more than is known
            two_digits = float(f"{total / share:.2g}")
            guesses.append(f"{two_digits:.0f}")
        table.add_row(TITLES[stem], *cells, f"~{'–'.join(guesses)}")
        before = total
    return table


def speed_change(before: float | None, after: float) -> str:
    """What a step gains in speed, such as `+264 %`, from the milliseconds before and after."""
    if not before:
        return ""
    if before == after:
        return "no change"
    percent = (before / after - 1) * 100
    digits = 0 if abs(percent) >= 0.95 else 1
    return f"{percent:+.{digits}f} %".replace("-", "−")


def reasons(steps: dict[str, dict], gpu: GPU, rates: dict[str, float]) -> dict[str, str]:
    """A line per rung: what it gains on this GPU over the one before, and why."""
    lines = {}
    before = None
    for stem, step in steps.items():
        if stem == AS_BEFORE:
            lines[stem] = f"{TITLES[stem]}: {PADDED}"
            continue
        if before:
            gained = speed_change(sum(roofline_ms(before, rates)), sum(roofline_ms(step, rates)))
            lines[stem] = f"{TITLES[stem]}: {gained}, {reason(before, step, gpu, rates)}"
        if stem == NO_SCORES:
            lines[stem] += scores_note(gpu)
        before = step
    return lines


def reason(before: dict, after: dict, gpu: GPU, rates: dict[str, float]) -> str:
    """Why a step takes another time than the one before: its unit, or the bytes it moves."""
    if before["unit"] != after["unit"]:
        has_tf32 = gpu.dtype == "bfloat16"
        if after["unit"] == "tf32" and not has_tf32:
            return "it has no TF32 units"
        names = {"fp32": "FP32", "tf32": "TF32" if has_tf32 else "FP32", "half": gpu.dtype}
        times = rates[after["unit"]] / rates[before["unit"]]
        old, new = names[before["unit"]], names[after["unit"]]
        return f"its {new} rate is {times:.1f} times its {old} rate"
    saved = sum(before[f"{part}_bytes"] - after[f"{part}_bytes"] for part in PARTS) / 1e9
    if not saved:
        return "the kernels are the same"
    return f"{abs(saved):.1f} GB {'less' if saved > 0 else 'more'} through its memory"


def scores_note(gpu: GPU) -> str:
    """The batch that fits a GPU once the scores take no memory, after what rung 06 gains."""
    train = ddp_batch(memory_on_sale(gpu.memory), MODELS["gpt2"], BLOCK_SIZE)
    return f"; B={train} then fits to train, not {what_fits(gpu)[0]}"
