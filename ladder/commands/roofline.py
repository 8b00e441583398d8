"""What a GPU can gain, and the work of each rung behind that: an estimate.

  ladder roofline                      FLOPs, bytes and kernels of a step
  ladder roofline --gpu 4070           what that card gains, and how fast it trains
  ladder roofline --gpu 4070 --hours 6     and the --steps that fill six hours
  ladder roofline --hours 6 --step-ms 8400     the same for a step as you measured it
  ladder roofline --gpu "H100 SXM" --batch-size 64

Without --gpu it takes the NVIDIA GPU of this machine, if there is one. The
work is that of GPT-2 124M at T=1024. Matmuls and attention take as long as
their rate or the bandwidth makes them, the rest as the bandwidth does; caches
are ignored. `gain` is in speed, over the rung before. The last column is the
time at the share of the roofline that others reached with rung 10: on that
GPU if somebody reported it, else on four fifths of the others.
"""

import argparse

from rich.table import Table

from ladder.cards import GPU, find_gpu
from ladder.cli import positive, rate
from ladder.errors import UsageError
from ladder.machine import first_line
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
from ladder.show.console import Screen, new_table, screen
from ladder.show.reported import HOUR, STEP_TOKENS, hours_of, known
from ladder.show.tables import titles
from ladder.show.words import gain_text, span


def add_arguments(parser: argparse.ArgumentParser):
    parser.add_argument(
        "--gpu", type=find, help=f"default: this machine's; one of: {', '.join(CARDS)}"
    )
    parser.add_argument(
        "--batch-size",
        type=positive,
        help="default: the largest that fits the baseline, at most 16",
    )
    parser.add_argument("--hours", type=rate, help="print the --steps of ddp_run.py that fill them")
    parser.add_argument(
        "--step-ms",
        type=rate,
        help="median_ms of a step of ddp_run.py on your machine (default: what is known of the "
        "card)",
    )


def main(args: argparse.Namespace) -> int:
    """The subcommand. Returns the exit status."""
    gpu = args.gpu or here()
    B = args.batch_size or (batch_to_compare(gpu) if gpu else 16)
    steps = work(B)
    console = screen()
    console.width = max(console.width, 80)  # a narrower terminal wraps lines and cuts no figure
    if gpu:
        print_answer(console, gpu)
    if args.hours:
        console.say(f"{steps_line(args.hours, args.step_ms, gpu)}\n")
    if gpu:
        print_times(console, gpu, B, steps)
    console.say(f"One step of GPT-2 124M, B={B}, T=1024: counted, not measured")
    console.print(work_table(steps))
    return 0


def find(text: str) -> GPU:
    """The GPU with all these words in its name.

    Of several it is the one whose words all others have: `4070` is the RTX 4070, not the Ti. Raises
    UsageError if there is none, or no such one.
    """
    words = set(text.lower().replace("rtx", "rtx ").split())
    names = {name: set(name.lower().split()) for name in CARDS}
    matches = [name for name in names if words <= names[name]]
    if not matches:
        raise UsageError(f"--gpu {text} is in no data sheet here: --help lists the names")
    shortest = min(matches, key=len)
    if not all(names[shortest] <= names[name] for name in matches):
        raise UsageError(f"--gpu {text} may be {', '.join(matches)}: write more of it")
    return CARDS[shortest]


def here() -> GPU | None:
    """The GPU of this machine, by nvidia-smi's name, if all its rates are known."""
    gpu = find_gpu(first_line("nvidia-smi", "--query-gpu=name", "--format=csv,noheader"))
    return gpu if gpu and gpu.bandwidth else None


def print_answer(console: Screen, gpu: GPU):
    """What somebody with this GPU asks first."""
    card = known()[gpu.name]
    hours = hours_of(gpu.name)
    fits, train = largest_batch(gpu), batch_to_train(gpu)
    console.say(f"""{gpu.name}, GPT-2 124M:
  rung 10 over the baseline, times as fast, at one B: {card["gain"]}
  in training, each at its largest B: {card["training_gain"]}
  training with ddp_run.py, tok/s: {card["training"]}
  1,000 steps of {STEP_TOKENS:,} tokens, hours: {hours}
  its {gpu.memory:g} GB hold B={fits} of the baseline, B={train} of ddp_run.py
How far off that may be: docs/measuring.md; reports: docs/reported.md
""")


def steps_line(hours: float, step_ms: float | None, gpu: GPU | None) -> str:
    """The --steps that fill so many hours. Raises UsageError if nothing says how long one takes."""
    if step_ms:
        rates = [STEP_TOKENS * 1e3 / step_ms]
    elif gpu:
        rates = known()[gpu.name]["tok_per_s"]
    else:
        raise UsageError("--hours needs a --gpu, or the --step-ms of yours")
    steps = [rate * hours * HOUR / STEP_TOKENS for rate in rates]
    return f"In {hours:g} hours, with validation: --steps {span(steps, 3)}"


def print_times(console: Screen, gpu: GPU, B: int, steps: dict[str, dict]):
    """The time of each rung on a GPU, the rates behind it, and what fits."""
    rates = rates_of(gpu)
    times = {stem: roofline_ms(step, rates) for stem, step in steps.items()}
    first, *_, last = (f"{sum(parts):.0f}" for parts in times.values())
    console.say(f"The roofline of {gpu.name} at B={B}: {first} → {last} ms, calculated")
    card = known()[gpu.name]
    console.print(time_table(times, card["shares"]))
    whose = "this card" if "reported" in card["training"] else "four fifths of such cards"
    console.say(f"Last column: at the share of the roofline that {whose} reached near rung 10")
    units = UNITS if gpu.dtype == "bfloat16" else ("fp32", "half")
    flops = ", ".join(f"{unit} {rates[unit]:.1f}" for unit in units)
    console.say(
        f"Matmuls in TFLOP/s: {flops}, {source_of(gpu)}; data sheet: {gpu.bandwidth:g} GB/s, "
        f"{gpu.memory:g} GB"
    )
    if gpu.note:
        console.say(f"About this card: {gpu.note}")
    console.say("")


def work_table(steps: dict[str, dict]) -> Table:
    """A row per rung: FLOPs by unit, bytes by what they are for, kernels."""
    heads = ("work\nTFLOP", "unit", "matmul\nGB", "attn\nGB", "traffic\nGB", "optim\nGB")
    table = new_table("rung", *heads, "kernels\nabout")
    for stem, step in steps.items():
        flops = step["linear_flops"] + step["attention_flops"]
        cells = [f"{flops / 1e12:.2f}", step["unit"]]
        for part in PARTS:
            cells.append(f"{step[f'{part}_bytes'] / 1e9:.1f}")
        table.add_row(titles()[stem], *cells, f"{step['kernels']}")
    return table


def time_table(times: dict[str, list[float]], shares: list[float]) -> Table:
    """A row per rung: its roofline, what it gains over the rung before, its parts, and an estimate:
    the time at each of the shares."""
    ends = list(dict.fromkeys(shares))[::-1]
    percents = "–".join(f"{share * 100:.0f}" for share in ends)
    heads = ("roofline\nms", "gain", "matmul\nms", "attn\nms", "traffic\nms", "optim\nms")
    table = new_table("rung", *heads, f"at {percents} %\nms")
    before = None
    for stem, parts in times.items():
        if stem == AS_BEFORE:  # the compiler may pad by itself
            table.add_row(titles()[stem], "as 06", *[""] * 5, "unknown")
            continue
        total = sum(parts)
        cells = [f"{total:.1f}", gain_text(before / total) if before else ""]
        cells += [f"{part:.1f}" for part in parts]
        # Two digits are more than is known.
        guesses = "–".join(f"{float(f'{total / share:.2g}'):.0f}" for share in ends)
        table.add_row(titles()[stem], *cells, f"~{guesses}")
        before = total
    return table
