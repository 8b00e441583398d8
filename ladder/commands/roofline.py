"""The work of each rung, counted, and the time it takes at a GPU's rates: an
estimate.

  ladder roofline                      FLOPs, bytes and kernels of a step
  ladder roofline --gpu 4070           and its time, at the largest B that fits
  ladder roofline --gpu "H100 SXM" --batch-size 64

Without --gpu it takes the NVIDIA GPU of this machine, if there is one. The
work is that of GPT-2 124M at T=1024. Matmuls and attention take as long as
their rate or the bandwidth makes them, the rest as the bandwidth does; caches
are ignored. `gain` is in speed, over the rung before. The last column is the
time at the share of the roofline that others reached with rung 10: on that
GPU, else the middle half of all.
"""

from statistics import quantiles

from rich.table import Table

from ladder.cli import positive
from ladder.errors import UsageError
from ladder.machine import GPU, find_gpu, first_line
from ladder.measure.rates import CARDS, UNITS, rates_of, source_of
from ladder.measure.work import (
    AS_BEFORE,
    PARTS,
    batch_to_compare,
    batch_to_train,
    largest_batch,
    roofline_ms,
    work,
)
from ladder.show.console import new_table, screen
from ladder.show.reported import gain_text, reported_gpus, reported_shares, share_of
from ladder.show.tables import titles


def add_arguments(parser):
    names = f"default: this machine's; one of: {', '.join(CARDS)}"
    parser.add_argument("--gpu", type=find, help=names)
    largest = "default: the largest that fits the baseline, at most 16"
    parser.add_argument("--batch-size", type=positive, help=largest)


def run(args) -> int:
    """The subcommand. Returns the exit status."""
    gpu = args.gpu or here()
    B = args.batch_size or (batch_to_compare(gpu.memory) if gpu else 16)
    steps = work(B)
    console = screen()
    console.width = max(console.width, 80)  # a narrower terminal wraps lines and cuts no figure
    if gpu:
        print_times(console, gpu, B, steps)
    console.say(f"One step of GPT-2 124M, B={B}, T=1024: counted, not measured")
    console.print(work_table(steps))
    if not gpu:
        console.say("note  --gpu NAME calculates the times on that card")
    return 0


def find(text: str) -> GPU:
    """The GPU that is called so, spaces left out, or the one with all these words in its name.

    Of several it is the one with which their names begin: `4070` is the RTX 4070, not the Ti.
    Raises UsageError if there is none or more than one.
    """
    words = text.lower().split()
    matches = []
    for name in CARDS:
        joined = name.lower().replace(" ", "")
        if joined == "".join(words):
            return CARDS[name]
        if all(word in joined for word in words):
            matches.append(name)
    if not matches:
        raise UsageError(f"--gpu {text} is in no data sheet here: --help lists the names")
    shortest = min(matches, key=len)
    if not all(name.startswith(shortest) for name in matches):
        raise UsageError(f"--gpu {text} may be {', '.join(matches)}: write more of it")
    return CARDS[shortest]


def here() -> GPU | None:
    """The GPU of this machine, by nvidia-smi's name, if all its rates are known."""
    gpu = find_gpu(first_line("nvidia-smi", "--query-gpu=name", "--format=csv,noheader"))
    return gpu if gpu and gpu.bandwidth else None


def print_times(console, gpu: GPU, B: int, steps: dict[str, dict]):
    """The time of each rung on a GPU, the rates behind it, and what fits."""
    rates = rates_of(gpu)
    times = {}
    for stem, step in steps.items():
        times[stem] = roofline_ms(step, rates)
    said, shares = others_reached(gpu.name, B)
    first = sum(times["baseline"])
    last = sum(times["10_fused_adamw"])
    console.say(f"The roofline of {gpu.name} at B={B}: calculated, not measured")
    console.print(time_table(times, shares))
    console.say(f"In all: {first:.0f} → {last:.0f} ms, {gain_text(first, last)}")
    console.say(said)
    console.say(rates_in_words(gpu, rates))
    if gpu.note:
        console.say(f"note  {gpu.note}")
    fits = largest_batch(gpu.memory)
    if fits < B:
        console.say(f"note  perhaps too little memory: the largest B that fits is {fits}")
    train = batch_to_train(gpu.memory)
    console.say(f"From 06 on the scores take no memory: B={train} fits to train, not {fits}\n")


def rates_in_words(gpu: GPU, rates: dict[str, float]) -> str:
    """The rates of a GPU, how far apart they are, and whose they are."""
    fp32, tf32, half = (rates[unit] for unit in UNITS)
    flops = f"fp32 {fp32:.1f}, "
    if gpu.dtype == "bfloat16":
        flops += f"tf32 {tf32:.1f} ({tf32 / fp32:.1f} times that), "
    else:
        flops += "no tf32, "
    flops += f"{gpu.dtype} {half:.1f} ({half / fp32:.1f} times)"
    sheet = f"by the data sheet {gpu.bandwidth:g} GB/s, {gpu.memory:g} GB"
    return f"Matmuls in TFLOP/s: {flops}, {source_of(gpu)}; {sheet}"


def others_reached(name: str, B: int) -> tuple[str, list[float]]:
    """What others reported, and the shares of the roofline that they reached.

    One share of this GPU, at the nearest B; where the table has none the middle half of all GPUs.
    """
    rows = [row for row in reported_gpus() if row["gpu"] == name]
    if rows:
        row = min(rows, key=lambda row: abs(row["B"] - B))
        share = share_of(row)
        what = f"B={row['B']:.0f}, {row['tok_per_s']:,.0f} tok/s, nearly rung 10"
        said = f"Reported elsewhere (docs/reported.md): {what}, {share * 100:.0f} % of the roofline"
        return said, [share]
    shares = reported_shares().values()
    low, _, high = quantiles(shares)
    reached = f"reached {low * 100:.0f} to {high * 100:.0f} % of it with nearly rung 10"
    return f"The middle half of {len(shares)} reported GPUs {reached}", [high, low]


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
        table.add_row(titles()[stem], *cells, f"{step['kernels']}")
    return table


def time_table(times: dict[str, tuple[float, ...]], shares: list[float]) -> Table:
    """A row per rung: its roofline, what it gains over the rung before, its parts, and an estimate:
    the time at each of the shares."""
    percents = "–".join(f"{share * 100:.0f}" for share in shares)
    heads = ("roofline\nms", "gain", "matmul\nms", "attn\nms", "traffic\nms", "optim\nms")
    table = new_table("rung", *heads, f"at {percents} %\nms")
    before = None
    for stem, parts in times.items():
        if stem == AS_BEFORE:  # the compiler may pad by itself
            table.add_row(titles()[stem], "as 06", *[""] * 5, "unknown")
            continue
        total = sum(parts)
        cells = [f"{total:.1f}", gain_text(before, total) if before else ""]
        cells += [f"{part:.1f}" for part in parts]
        guesses = []
        for share in shares:  # two digits are more than is known
            guesses.append(f"{float(f'{total / share:.2g}'):.0f}")
        table.add_row(titles()[stem], *cells, f"~{'–'.join(guesses)}")
        before = total
    return table
