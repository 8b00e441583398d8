"""The work of each rung, counted, and the time it takes at a GPU's data sheet: an estimate.

  ladder roofline                            FLOPs, bytes and kernels of a step at B=16, T=1024
  ladder roofline --gpu "A100 SXM"           and its milliseconds at the rates of the data sheet
  ladder roofline --gpu "H100 SXM" --batch-size 64

Without --gpu it takes the NVIDIA GPU of this machine, if there is one. The work is that of GPT-2
124M at T=1024. Matmuls and attention take as long as their rate or the bandwidth makes them, the
rest as the bandwidth does; caches are ignored. `gain` is in speed, over the rung before. The last
column is the time at the share of the roofline that others reached with rung 10: on that GPU, else
the middle half of all.
"""

from statistics import quantiles

from rich import box
from rich.table import Column, Table

from ladder.cli import BLOCK_SIZE, MODELS, positive
from ladder.errors import UsageError
from ladder.machine import DATA_SHEETS, GPU, find_gpu, first_line
from ladder.measure.docstrings import title
from ladder.measure.scripts import rungs
from ladder.measure.work import AS_BEFORE, PARTS, roofline_ms, work
from ladder.memory import baseline_batch, memory_on_sale
from ladder.show.console import screen
from ladder.show.reported import reported_gpus, roofline_fraction

TITLES = {path.stem: title(path) for path in rungs()}
LISTED = {gpu.name: gpu for gpu in DATA_SHEETS.values() if gpu.bandwidth}


def add_arguments(parser):
    names = f"default: this machine's; one of: {', '.join(LISTED)}"
    parser.add_argument("--gpu", type=find, help=names)
    parser.add_argument("--batch-size", type=positive, default=16, help="default: 16")


def run(args) -> int:
    """The subcommand. Returns the exit status."""
    B = args.batch_size
    steps = work(B)
    console = screen()
    console.width = max(console.width, 80)  # a narrower terminal wraps lines and cuts no figure
    print(f"One step of GPT-2 124M, B={B}, T=1024: counted, not measured")
    console.print(work_table(steps))
    gpu = args.gpu or here()
    if not gpu:
        print("note  --gpu NAME calculates the times on that card")
        return 0
    print(f"The roofline of {gpu.name}: calculated, not measured")
    print(f"({rates(gpu)})")
    if gpu.note:
        console.print(f"note  {gpu.note}")
    largest, words = what_fits(gpu)
    if largest < B:
        print(f"note  {words}")
    source, shares = reported_shares(gpu.name, B)
    console.print(time_table(steps, gpu, shares))
    print(f"{source} {percents(shares)} of the roofline")
    return 0


def rates(gpu: GPU) -> str:
    """The data sheet of a GPU in words."""
    tf32 = "no tf32" if gpu.dtype == "float16" else f"tf32 {gpu.tf32:g}"
    flops = f"fp32 {gpu.fp32:g}, {tf32}, {gpu.dtype} {gpu.half:g} TFLOP/s"
    return f"{flops}, {gpu.bandwidth:g} GB/s, {gpu.memory:g} GB"


def what_fits(gpu: GPU) -> tuple[int, str]:
    """The largest B at which the baseline fits a GPU, or 0; and that in words."""
    largest = baseline_batch(memory_on_sale(gpu.memory), MODELS["gpt2"], BLOCK_SIZE)
    if largest == 0:
        return 0, f"the baseline does not fit its {gpu.memory:g} GB even with B=1"
    return largest, f"the baseline fits its {gpu.memory:g} GB up to about B={largest}"


def find(text: str) -> GPU:
    """The GPU of the table with this name, or the one with all these words in it.

    Raises UsageError if there is none or more than one.
    """
    words = text.lower().split()
    matches = []
    for name, gpu in LISTED.items():
        in_name = name.lower().split()
        if in_name == words:
            return gpu
        if set(words) <= set(in_name):
            matches.append(name)
    if len(matches) == 1:
        return LISTED[matches[0]]
    if matches:
        raise UsageError(f"--gpu {text} may be {', '.join(matches)}: write more of it")
    raise UsageError(f"--gpu {text} is in no data sheet here: --help lists the names")


def here() -> GPU | None:
    """The GPU of this machine, by nvidia-smi's name, if all its rates are known."""
    gpu = find_gpu(first_line("nvidia-smi", "--query-gpu=name", "--format=csv,noheader"))
    return gpu if gpu and gpu.bandwidth else None


def reported_shares(name: str, B: int) -> tuple[str, list[float]]:
    """What others reported, and the shares of the roofline that they reached.

    One share of this GPU, at the nearest B; without a report of it the middle half of all GPUs.
    """
    rows = sorted(reported_gpus(), key=lambda row: row["tok_per_s"])
    own = [row for row in rows if row["gpu"] == name]
    if own:
        row = min(own, key=lambda row: abs(row["B"] - B))
        what = f"B={row['B']:.0f}, {row['tok_per_s']:,.0f} tok/s, nearly rung 10"
        share = roofline_fraction(row, LISTED[name]._asdict())
        return f"Reported elsewhere (docs/reported.md): {what}:", [share]
    fastest = {}
    for row in rows:  # the fastest B of a GPU comes last
        fastest[row["gpu"]] = roofline_fraction(row, LISTED[row["gpu"]]._asdict())
    low, _, high = quantiles(fastest.values())
    return f"No report of this GPU. The middle half of {len(fastest)} others reached", [high, low]


def percents(shares: list[float]) -> str:
    """Such as `73 to 59 %`."""
    return " to ".join(f"{share * 100:.0f}" for share in shares) + " %"


def work_table(steps: dict[str, dict]) -> Table:
    """A row per rung: FLOPs by unit, bytes by what they are for, kernels."""
    heads = ("work\nTFLOP", "unit", "all\nGB", "matmul\nGB", "attn\nGB", "other\nGB")
    table = new_table(*heads, "optim\nGB", "kernels\nabout")
    for stem, step in steps.items():
        flops = step["linear_flops"] + step["attention_flops"]
        moved = [step[f"{part}_bytes"] for part in PARTS]
        cells = [f"{flops / 1e12:.2f}", step["unit"]]
        for value in (sum(moved), *moved):
            cells.append(f"{value / 1e9:.1f}")
        table.add_row(TITLES[stem], *cells, str(step["kernels"]))
    return table


def time_table(steps: dict[str, dict], gpu: GPU, shares: list[float]) -> Table:
    """A row per rung: its roofline, what it gains over the rung before, its parts, an estimate.

    The estimate is the time at each of the shares.
    """
    heads = ("roofline\nms", "gain", "matmul\nms", "attn\nms", "other\nms", "optim\nms")
    table = new_table(*heads, f"at {percents(shares)}\nms")
    before = None
    for stem, step in steps.items():
        if stem == AS_BEFORE:
            table.add_row(TITLES[stem], "as 06", *[""] * 5, "unknown")
            continue
        parts = roofline_ms(step, gpu._asdict())
        total = sum(parts)
        cells = [f"{total:.1f}", speed_change(before, total)]
        cells += [f"{part:.1f}" for part in parts]
        guesses = []
        for share in shares:  # two digits are more than is known
            two_digits = float(f"{total / share:.2g}")
            guesses.append(f"~{two_digits:.0f}")
        table.add_row(TITLES[stem], *cells, " – ".join(guesses))
        before = total
    return table


def speed_change(before: float | None, after: float) -> str:
    """What a step gains in speed, such as `+264 %`, from the milliseconds before and after."""
    return f"{round((before / after - 1) * 100):+d} %" if before else ""


def new_table(*columns: str) -> Table:
    """Narrow enough for 80 columns."""
    right = [Column(column, justify="right") for column in columns]
    return Table("rung", *right, box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
