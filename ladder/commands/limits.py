"""The work of each rung, counted, and its time at a GPU's data sheet: calculated, not measured.

  ladder limits                            TFLOP, gigabytes and kernels of a step at B=16, T=1024
  ladder limits --gpu "A100 SXM"           and its milliseconds at the rates of the data sheet
  ladder limits --gpu "H100 SXM" --batch-size 64
  ladder limits --fp32 19.5 --tf32 156 --bf16 312 --bandwidth 2039     of another GPU: TFLOP/s, GB/s

Without --gpu it takes the NVIDIA GPU of this machine, if there is one. The work is that of GPT-2
124M at T=1024 (work.json, counted by `python -m ladder.commands.count`; docs/limits.md has the
method). The limit of a step is the sum of four parts: matmuls and attention, each at the rate or
the bandwidth, whichever takes longer; what runs between them, and the optimizer, at the bandwidth.
Published steps reach 45 to 85 % of it.
"""

import json
from functools import cache
from pathlib import Path

from rich import box
from rich.table import Table

from ladder.cli import above_zero, positive
from ladder.commands.process import Screen, first_line
from ladder.commands.scripts import all_scripts, title
from ladder.errors import BadInput
from ladder.files import regular, write_whole
from ladder.machine import DATA_SHEETS, find_gpu

MADE_BY = "ladder limits"  # in the PNG
WORK = Path(__file__).with_name("work.json")
NAMES = {path.stem: title(path) for path in all_scripts()}
UNITS = ("fp32", "tf32", "bf16")
PARTS = ("linear", "attention", "other", "optimizer")
LABELS = ("matmuls", "attention", "between them", "optimizer")
PUBLISHED = (0.85, 0.45)  # the share of the limit that published steps reach: docs/limits.md
# The T at which steps are counted; of a CPU, with its own autocast and kernels.
SIZES = {"cuda": 1024, "cpu": 256}
LISTED = {gpu.name: gpu for gpu in DATA_SHEETS.values() if gpu.bandwidth}


def add_arguments(parser):
    parser.add_argument(
        "--gpu", metavar="NAME", help="default: this machine's; one of: " + ", ".join(LISTED)
    )
    parser.add_argument("--batch-size", type=positive, default=16, metavar="B", help="default: 16")
    rate = dict(type=above_zero, help="default: the GPU's")
    for unit in UNITS:
        parser.add_argument(f"--{unit}", metavar="TFLOP/s", **rate)
    parser.add_argument("--bandwidth", metavar="GB/s", **rate)
    picture = "draw the gigabytes of each rung (default: no)"
    parser.add_argument("--picture", metavar="PNG", help=picture)


def run(args) -> int:
    """The subcommand. Returns the exit status."""
    if args.picture is not None and not args.picture.lower().endswith(".png"):
        raise BadInput(f"--picture {args.picture}: it is drawn as a PNG: end the name with .png")
    own = {unit: getattr(args, unit) for unit in (*UNITS, "bandwidth")}
    name = here() if args.gpu is None else find(args.gpu)
    rates = {key: getattr(LISTED[name], key) for key in own} if name else {}
    rates |= {unit: rate for unit, rate in own.items() if rate is not None}
    if rates and len(rates) < len(own):
        missing = ", ".join(f"--{unit}" for unit in own if unit not in rates)
        raise BadInput(f"these rates are missing: {missing} (or name a --gpu)")
    steps, console = work(args.batch_size), Screen(highlight=False)
    print(f"One step of GPT-2 124M, B={args.batch_size}, T=1024: counted, not measured")
    console.print(work_table(steps))
    if args.picture:
        draw(steps, Path(args.picture))
    if rates:
        words = ", ".join(f"{unit} {rates[unit]:g}" for unit in UNITS)
        words += f" TFLOP/s, {rates['bandwidth']:g} GB/s"
        print(f"The limit on {name or 'such a GPU'}: calculated, not measured\n({words})")
        console.print(limit_table(steps, rates))
        print("(07: the compiler pads rung 06's matmuls as well, where its own benchmark says so.)")
    if args.picture:
        print(f"written: {args.picture}")
    return 0


def find(text: str) -> str:
    """The GPU of the table with all these words in its name, or its driver's. Raises BadInput."""
    if (gpu := find_gpu(text)) and gpu.bandwidth:
        return gpu.name
    words = text.lower().replace("nvidia", "").split()
    found = [name for name in LISTED if all(word in name.lower().split() for word in words)]
    if len(found) != 1:
        fits = f"fits {', '.join(found)}" if found else "is not in the table"
        known = "them" if found else ", ".join(LISTED)
        raise BadInput(f"--gpu {text} {fits}: name one of {known}, or give its rates")
    return found[0]


def here() -> str | None:
    """The GPU of this machine, by nvidia-smi's name, if all its rates are known."""
    gpu = find_gpu(first_line("nvidia-smi", "--query-gpu=name", "--format=csv,noheader"))
    return gpu.name if gpu and gpu.bandwidth else None


@cache
def counted() -> dict[str, dict]:
    """work.json: of each kind of device and rung, a constant and a slope in B for each quantity."""
    return json.loads(WORK.read_text(encoding="utf-8"))


def work(B: int, device: str = "cuda") -> dict[str, dict]:
    """The work of a step of each rung, by stem: FLOPs, bytes and kernels, and the matmuls' unit."""
    return {
        stem: {
            kind: value if kind == "unit" else value[0] + B * value[1]
            for kind, value in kinds.items()
        }
        for stem, kinds in counted()[device].items()
    }


def limit_of(stem: str, run: dict, facts: dict) -> tuple[float, float, float, float] | None:
    """limit_ms of a step in a climb, by its run line and climb.json; None if it is not known.

    Known is GPT-2 124M: at T=1024 on a GPU with all rates in the table, and at T=256 on a CPU whose
    matmuls and copy the climb measured.
    """
    gpu, device = find_gpu(run["device"]), "cuda"
    if gpu and gpu.bandwidth:
        rates = gpu._asdict()
    elif facts.get("copy_bytes_per_s") and facts.get("peak_dtype") == "bfloat16":
        device, fp32 = "cpu", facts["fp32_flops"] / 1e12  # it has no TF32 units
        rates = {"fp32": fp32, "tf32": fp32, "bf16": facts["peak_flops"] / 1e12}
        rates["bandwidth"] = facts["copy_bytes_per_s"] / 1e9
    else:
        return None
    if stem not in counted()[device] or run["model"] != "gpt2" or int(run["T"]) != SIZES[device]:
        return None
    return limit_ms(work(int(run["B"]), device)[stem], rates)


def limit_ms(step: dict, rates: dict[str, float]) -> tuple[float, float, float, float] | None:
    """Milliseconds of matmuls, attention, what is between them, optimizer; None without the unit.

    `rates` in TFLOP/s by unit, and `bandwidth` in GB/s.
    """
    if not (rate := rates[step["unit"]]):
        return None
    memory = {key: step[f"{key}_bytes"] / rates["bandwidth"] / 1e6 for key in PARTS}
    at_rate = {key: step[f"{key}_flops"] / rate / 1e9 for key in ("linear", "attention")}
    return tuple(max(memory[key], at_rate.get(key, 0)) for key in PARTS)


def work_table(steps: dict[str, dict]) -> Table:
    """A row per rung: FLOPs by unit, bytes by what they are for, kernels."""
    found = new_table("TFLOP", "unit", "GB", "matmul", "attn", "other", "optim", "kernels ~")
    for stem, step in steps.items():
        moved = [step[f"{part}_bytes"] / 1e9 for part in PARTS]
        flops = (step["linear_flops"] + step["attention_flops"]) / 1e12
        numbers = [f"{value:.1f}" for value in (sum(moved), *moved)]
        found.add_row(NAMES[stem], f"{flops:.2f}", step["unit"], *numbers, str(step["kernels"]))
    return found


def limit_table(steps: dict[str, dict], rates: dict[str, float]) -> Table:
    """A row per rung: its limit in milliseconds, and the parts of it."""
    found = new_table("limit, ms", "matmul", "attn", "other", "optim", "at 85 to 45 %")
    for stem, step in steps.items():
        if stem.startswith("07_"):  # the compiler may pad the unpadded matmul by itself
            cells = ["as 06", *[""] * 4, "not predictable"]
        elif parts := limit_ms(step, rates):
            total = sum(parts)
            cells = [f"{value:.1f}" for value in (total, *parts)]
            cells.append(" – ".join(f"{total / share:.0f}" for share in PUBLISHED))
        else:
            cells = ["–", *[""] * 4, f"no {step['unit']} units"]
        found.add_row(NAMES[stem], *cells)
    return found


def new_table(*columns: str) -> Table:
    """Narrow enough for 80 columns."""
    found = Table("rung", box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    for column in columns:
        found.add_column(column, justify="right")
    return found


def draw(steps: dict[str, dict], picture: Path) -> None:
    """Bars of the gigabytes that each rung moves, stacked by part, as a PNG."""
    from ladder.commands.picture import Figure  # matplotlib takes a second to import

    axes = Figure(figsize=(9, 4), layout="tight").subplots()
    left = [0.0] * len(steps)
    for part, label in zip(PARTS, LABELS, strict=True):
        widths = [step[f"{part}_bytes"] / 1e9 for step in steps.values()]
        axes.barh([NAMES[stem] for stem in steps], widths, left=left, label=label)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("gigabytes read and written in one step: counted, not measured")
    axes.legend()
    axes.spines[["top", "right"]].set_visible(False)

    def save(file):
        axes.figure.savefig(file, format="png", dpi=110, metadata={"Software": MADE_BY})

    if regular(picture).exists():
        with picture.open("rb") as file:
            if MADE_BY.encode() not in file.read(1000):
                raise BadInput(f"{picture} is there, and not of this command: choose another name")
    write_whole(picture, save)
