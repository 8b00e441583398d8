"""The work of each rung, counted, and the time it takes at a GPU's data sheet: an estimate.

  ladder roofline                            FLOPs, bytes and kernels of a step at B=16, T=1024
  ladder roofline --gpu "A100 SXM"           and its milliseconds at the rates of the data sheet
  ladder roofline --gpu "H100 SXM" --batch-size 64

Without --gpu it takes the NVIDIA GPU of this machine, if there is one. The work is that of GPT-2
124M at T=1024. Matmuls and attention take as long as their rate or the bandwidth makes them, the
rest as the bandwidth does; caches are ignored. The last column is the time at the share of this
that others reached with rung 10: on that GPU, else the middle half of all.
"""

from statistics import quantiles

from rich import box
from rich.table import Column, Table

from ladder.cli import positive
from ladder.errors import BadInput
from ladder.machine import DATA_SHEETS, find_gpu
from ladder.measure.process import first_line
from ladder.measure.scripts import all_scripts, title
from ladder.measure.work import PARTS, roofline_ms, work
from ladder.show.reported import reported_gpus, roofline_fraction
from ladder.show.screen import Screen

NAMES = {path.stem: title(path) for path in all_scripts()}
LISTED = {gpu.name: gpu for gpu in DATA_SHEETS.values() if gpu.bandwidth}


def add_arguments(parser):
    names = f"default: this machine's; one of: {', '.join(LISTED)}"
    parser.add_argument("--gpu", metavar="NAME", type=find, help=names)
    parser.add_argument("--batch-size", type=positive, default=16, metavar="B", help="default: 16")


def run(args) -> int:
    """The subcommand. Returns the exit status."""
    name, steps, console = args.gpu or here(), work(args.batch_size), Screen(highlight=False)
    print(f"One step of GPT-2 124M, B={args.batch_size}, T=1024: counted, not measured")
    console.print(work_table(steps))
    if name:
        rates = LISTED[name]._asdict()
        words = "(fp32 {fp32:g}, tf32 {tf32:g}, bf16 {bf16:g} TFLOP/s, {bandwidth:g} GB/s)"
        print(f"The roofline of {name}: calculated, not measured")
        print(words.format(**rates))
        end, shares = calibrated(name, args.batch_size)
        console.print(time_table(steps, rates, shares))
        print(f"{end}: {' to '.join(f'{one:.0%}' for one in shares)}".replace("%", " %"))
    return 0


def find(text: str) -> str:
    """The one GPU of the table with all these words in its name. Raises BadInput."""
    words = text.lower().split()
    found = [name for name in LISTED if all(word in name.lower().split() for word in words)]
    if len(found) != 1:
        raise BadInput(f"--gpu {text} is not one of {', '.join(found or LISTED)}")
    return found[0]


def here() -> str | None:
    """The GPU of this machine, by nvidia-smi's name, if all its rates are known."""
    gpu = find_gpu(first_line("nvidia-smi", "--query-gpu=name", "--format=csv,noheader"))
    return gpu.name if gpu and gpu.bandwidth else None


def calibrated(name: str, B: int) -> tuple[str, list[float]]:
    """What is reported of this GPU, and the share of the roofline that it reached; else of all."""
    rows = sorted(reported_gpus(), key=lambda row: row["tok_per_s"])
    if own := [row for row in rows if row["gpu"] == name]:
        row = min(own, key=lambda row: abs(row["B"] - B))
        end = f"B={row['B']:.0f}, {row['tok_per_s']:,.0f} tok/s, nearly rung 10"
        return f"Reported elsewhere: {end} (docs/reported.md)", [
            roofline_fraction(row, LISTED[name]._asdict())
        ]
    best = {
        row["gpu"]: roofline_fraction(row, LISTED[row["gpu"]]._asdict()) for row in rows
    }  # the fastest B
    low, _, high = quantiles(best.values())
    return f"No report of this GPU: the middle half of {len(best)} others", [high, low]


def work_table(steps: dict[str, dict]) -> Table:
    """A row per rung: FLOPs by unit, bytes by what they are for, kernels."""
    heads = ("work\nTFLOP", "unit", "all\nGB", "matmul\nGB", "attn\nGB", "other\nGB")
    found = new_table(*heads, "optim\nGB", "kernels\nabout")
    for stem, step in steps.items():
        moved = [step[f"{part}_bytes"] / 1e9 for part in PARTS]
        flops = (step["linear_flops"] + step["attention_flops"]) / 1e12
        numbers = [f"{value:.1f}" for value in (sum(moved), *moved)]
        found.add_row(NAMES[stem], f"{flops:.2f}", step["unit"], *numbers, str(step["kernels"]))
    return found


def time_table(steps: dict[str, dict], rates: dict[str, float], shares: list[float]) -> Table:
    """A row per rung: its roofline in milliseconds, the parts of it, and it at the shares."""
    heads = ("roofline\nms", "matmul\nms", "attn\nms", "other\nms", "optim\nms")
    found = new_table(*heads, f"at {' to '.join(f'{one * 100:.0f}' for one in shares)} %\nms")
    for stem, step in steps.items():
        if stem.startswith("07_"):  # the compiler may pad the unpadded matmul by itself
            cells = ["as 06", *[""] * 4, "not predictable"]
        elif parts := roofline_ms(step, rates):
            total = sum(parts)
            cells = [f"{value:.1f}" for value in (total, *parts)]
            # A guess: two digits of it are more than is known.
            cells.append(" – ".join(f"~{float(f'{total / one:.2g}'):.0f}" for one in shares))
        else:
            cells = ["–", *[""] * 4, f"no {step['unit']} units"]
        found.add_row(NAMES[stem], *cells)
    return found


def new_table(*columns: str) -> Table:
    """Narrow enough for 80 columns."""
    right = [Column(column, justify="right") for column in columns]
    return Table("rung", *right, box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
