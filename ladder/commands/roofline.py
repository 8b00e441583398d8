"""What a GPU can gain, and the work of each rung behind that: an estimate.

  ladder roofline --gpu 4070           what that card gains, and how fast it trains
  ladder roofline --gpu A100           the same of each A100, in a line
  ladder roofline --gpu 4070 --hours 6     and the --steps that fill six hours
  ladder roofline --hours 6 --step-ms 8400     the same for a step as you measured it
  ladder roofline --gpu "H100 SXM" --batch-size 64
  ladder roofline --work               FLOPs, bytes and kernels of a step

Without --gpu it takes the NVIDIA GPU of this machine, if there is one. The
work is that of GPT-2 124M at T=1024. Matmuls and attention take as long as
their rate or the bandwidth makes them, the rest as the bandwidth does; caches
are ignored. `gain` is in speed, over the rung before. Beside it stand the gains
that others reported on such chips: their median and range.
"""

import argparse

from rich.table import Table

from ladder.cards import DATA_SHEETS, GPU, find_gpu
from ladder.cli import BLOCK_SIZE, not_negative, positive
from ladder.errors import UsageError
from ladder.machine import first_line
from ladder.measure.fits import batch_to_compare, batch_to_train, largest_batch
from ladder.measure.notes import title_of
from ladder.measure.rates import CARDS, UNITS, rates_of, source_of
from ladder.measure.work import AS_BEFORE, PARTS, Work, roofline_ms, work
from ladder.show.console import Screen, new_table, screen
from ladder.show.reported import HOUR, STEP_TOKENS, gains_text, hours_of, known, rung_gains
from ladder.show.words import gain_text, span
from ladder.text import did_you_mean


def add_arguments(parser: argparse.ArgumentParser):
    parser.add_argument(
        "--gpu", type=find, help=f"default: this machine's; one of: {', '.join(CARDS)}"
    )
    parser.add_argument(
        "--batch-size",
        type=positive,
        help="default: the largest that fits the baseline, at most 16",
    )
    parser.add_argument(
        "--hours", type=not_negative, help="print the --steps of train.py that fill them"
    )
    parser.add_argument(
        "--step-ms",
        type=not_negative,
        help="median_ms of a step of train.py on your machine (default: what is known of the card)",
    )
    parser.add_argument(
        "--work",
        action="store_true",
        help="print the counted work of each rung",
    )


def main(args: argparse.Namespace) -> int:
    """The subcommand. Returns the exit status."""
    gpus = args.gpu or here()
    gpu = gpus[0] if len(gpus) == 1 else None
    console = screen()
    console.width = max(console.width, 80)  # a narrower terminal wraps lines and cuts no figure
    if gpu:
        print_answer(console, gpu, args.batch_size)
    elif gpus:
        print_variants(console, gpus)
    if args.hours:
        console.say(f"{steps_line(args.hours, args.step_ms, gpu)}\n")
    B = args.batch_size or (batch_to_compare(gpu) if gpu else 16)
    steps = work(B)
    if gpu:
        print_times(console, gpu, B, steps)
    if args.work or not (gpus or args.hours):
        console.say(f"One step of GPT-2 124M, B={B}, T=1024: counted, not measured")
        console.print(work_table(steps))
    return 0


def find(text: str) -> list[GPU]:
    """The GPU that a driver calls so, else those with all these words in their names.

    It is the one whose words all others have, if there is such a one: `4070` is the RTX 4070, not
    the Ti. Raises UsageError if there is none, or nothing is known of it.
    """
    by_driver = find_gpu(text)
    if by_driver and by_driver.name in CARDS:
        return [by_driver]
    words = set(text.lower().replace("-", " ").replace("rtx", "rtx ").split())
    words -= {"nvidia", "geforce", "tesla", "gpu"}  # as drivers and shops write
    names = {name: set(name.lower().split()) for name in CARDS}
    matches = [name for name in names if words <= names[name]]
    if not matches:
        raise UsageError(f"--gpu {text}: {not_found(text)}")
    shortest = min(matches, key=len)
    if all(names[shortest] <= names[name] for name in matches):
        matches = [shortest]
    return [CARDS[name] for name in matches]


def not_found(text: str) -> str:
    """Why no card of this name can be calculated, and what may have been meant."""
    sheets = [gpu.name for gpu in DATA_SHEETS.values()]
    if text.upper() in sheets:
        return "its bandwidth is in no data sheet here, so nothing is calculated"
    close = did_you_mean(text.upper(), CARDS)
    return f"in no data sheet here{close or '; --help lists the names'}"


def here() -> list[GPU]:
    """The GPU of this machine, by nvidia-smi's name, if all its rates are known; else none."""
    gpu = find_gpu(first_line("nvidia-smi", "--query-gpu=name", "--format=csv,noheader"))
    return [gpu] if gpu and gpu.bandwidth else []


def print_answer(console: Screen, gpu: GPU, B: int | None):
    """What somebody with this GPU asks first."""
    card = known()[gpu.name]
    hours = hours_of(gpu.name)
    fits, train = largest_batch(gpu), batch_to_train(gpu)
    console.say(f"""{gpu.name}, GPT-2 124M (calculated, so wide that it holds what others reported):
  rung 10 over the baseline, times as fast, at one B: {span(card["gain"])}
  training with train.py, tok/s: {rates_text(gpu)}
  1,000 steps of {STEP_TOKENS:,} tokens, hours: {hours}
  its {gpu.memory:g} GB hold B={fits} of the baseline, B={train} of train.py
How far off that may be: docs/measuring.md; reports: docs/reported.md""")
    if (B or 0) > fits:
        console.say(f"B={B} does not fit: the baseline has room for {fits}, train.py for {train}")
    console.say("")


def rates_text(gpu: GPU) -> str:
    """Tokens per second of train.py: the range, and its middle."""
    card = known()[gpu.name]
    return f"{span(card['tok_per_s'])}, middle {card['middle']:,.0f}"


def print_variants(console: Screen, gpus: list[GPU]):
    """A line for each card of a name that several have."""
    console.say("Rung 10 over the baseline, times as fast; training with train.py, tok/s:")
    for gpu in gpus:
        console.say(f"  {gpu.name}: {span(known()[gpu.name]['gain'])}; {rates_text(gpu)}")
    console.say(f'More of one: ladder roofline --gpu "{gpus[0].name}"\n')


def steps_line(hours: float, step_ms: float | None, gpu: GPU | None) -> str:
    """The --steps that fill so many hours. Raises UsageError if nothing says how long one takes."""
    if step_ms:
        rates = [STEP_TOKENS * 1e3 / step_ms]
    elif gpu:
        rates = known()[gpu.name]["tok_per_s"]
    else:
        raise UsageError("--hours needs one --gpu, or the --step-ms of yours")
    steps = [rate * hours * HOUR / STEP_TOKENS for rate in rates]
    return f"In {hours:g} hours, with validation: --steps {span(steps, 3)}"


def print_times(console: Screen, gpu: GPU, B: int, steps: dict[str, Work]):
    """The time of each rung on a GPU, the rates behind it, and what others reported."""
    rates = rates_of(gpu)
    times = {stem: roofline_ms(step, rates) for stem, step in steps.items()}
    first, *_, last = (f"{sum(parts):.0f}" for parts in times.values())
    console.say(f"The roofline of {gpu.name} at B={B}: {first} → {last} ms, calculated")
    chip = known()[gpu.name]["chip"]
    console.print(time_table(times, chip))
    console.say(f"Reported: on {chip} cards, over the rung timed before it")
    reports = known()[gpu.name]["reports"]
    if reports:
        console.say("On this card others ran:")
    for row in reports:
        ms = 1e3 * row["B"] * BLOCK_SIZE / row["tok_per_s"]
        figures = f"{row['tok_per_s']:,.0f} tok/s, {ms:,.0f} ms of B={row['B']:.0f}"
        console.say(f"  {title_of(row['rung'])}: {figures}, {row['who']}")
    units = UNITS if gpu.dtype == "bfloat16" else ("fp32", "half")
    flops = ", ".join(f"{unit} {rates[unit]:.1f}" for unit in units)
    console.say(
        f"Matmuls in TFLOP/s: {flops}, {source_of(gpu)}; data sheet: {gpu.bandwidth:g} GB/s, "
        f"{gpu.memory:g} GB"
    )
    if gpu.note:
        console.say(f"About this card: {gpu.note}")


def work_table(steps: dict[str, Work]) -> Table:
    """A row per rung: FLOPs by unit, bytes by what they are for, kernels."""
    heads = ("work\nTFLOP", "unit", "matmul\nGB", "attn\nGB", "traffic\nGB", "optim\nGB")
    table = new_table("rung", *heads, "kernels\nabout")
    for stem, step in steps.items():
        cells = [f"{sum(step.flops.values()) / 1e12:.2f}", step.unit]
        for part in PARTS:
            cells.append(f"{step.bytes[part] / 1e9:.1f}")
        table.add_row(title_of(stem), *cells, f"{step.kernels}")
    return table


def time_table(times: dict[str, list[float]], chip: str) -> Table:
    """A row per rung: its roofline, what it gains over the rung before, and what others reported
    on such chips."""
    table = new_table("rung", "roofline\nms", "gain", "reported\nmedian", "range\n(ladders)")
    before = None
    for stem, parts in times.items():
        reported = gains_text(rung_gains(chip)[stem])
        total = sum(parts)
        cells = [f"{total:.1f}", gain_text(before / total) if before else ""]
        if stem == AS_BEFORE:  # the compiler may pad by itself
            cells = ["as 06", ""]
        else:
            before = total
        table.add_row(title_of(stem), *cells, *reported)
    return table
