"""The parts of README.md and RUNLOG.md that are made from logs."""

import re
from pathlib import Path
from typing import NamedTuple

from ladder.cli import BLOCK_SIZE, MODELS
from ladder.commands.roofline import LISTED, gain, usual_share
from ladder.corpus import TINYSHAKESPEARE_SHA256
from ladder.files import ROOT
from ladder.machine import GPU, find_gpu
from ladder.measure.climb import Climb
from ladder.measure.docstrings import describe, title
from ladder.measure.rates import rates_of
from ladder.measure.rows import Row, first_log, read_climb
from ladder.measure.scripts import branch, number_of, relative_name, rungs, rungs_for
from ladder.measure.work import AS_BEFORE, roofline_ms, work
from ladder.memory import baseline_batch, ddp_batch, memory_on_sale
from ladder.show.reported import reported_climb
from ladder.show.tables import (
    Cell,
    factor,
    gain_cell,
    markdown,
    percent,
    pipes,
    table,
)

# In README.md the table of rungs names a climb on a GPU, one on a CPU or both, and the cards have a
# table; in RUNLOG.md each entry has the table of one climb, or its losses alone if the machine was
# busy, and the machines are all of logs/.
BLOCK = re.compile(
    r"<!-- (?P<kind>rungs|cards|more-cards|machines|table|losses)(?P<folders>( \S+)*) -->"
    r"\n.*?<!-- end -->",
    re.DOTALL,
)
A100 = "NVIDIA A100-SXM4-80GB"
RTX_4090 = "NVIDIA GeForce RTX 4090"
B = 16  # of the reported climb and of the calculated columns
CALCULATED = f"""
*Calculated*: the [roofline](docs/measuring.md#how-work-is-counted) at B={B}, T=1024, even if that
does not fit the card. It estimates the shortest step, and cannot see how rows are aligned (07).
"""
NO_GPU = "No GPU has been measured here yet: [send us yours](CONTRIBUTING.md#send-a-climb)."
CARDS = {
    "RTX 4070, 12 GB": "NVIDIA GeForce RTX 4070",
    "RTX 3090, 24 GB": "NVIDIA GeForce RTX 3090",
    "RTX 4090, 24 GB": RTX_4090,
    "A100, 80 GB": A100,
    "H100, 80 GB": "NVIDIA H100 80GB HBM3",
}
USUAL = f"gpt2 on tinyshakespeare ({TINYSHAKESPEARE_SHA256[:12]})"  # of README.md's tables


def render(text: str) -> str:
    """`text` with every block between markers made again from the logs that its marker names."""
    return BLOCK.sub(block, text)


def block(match: re.Match) -> str:
    """One block with its markers, made from its logs."""
    marker = match[0].partition("\n")[0]
    climbs = climbs_of(match)
    if match["kind"] == "rungs":
        made = rungs_table(climbs)
    elif match["kind"] == "cards":
        made = cards_table()
    elif match["kind"] == "more-cards":
        made = more_cards_table()
    elif match["kind"] == "losses":
        made = losses_table(*climbs[0][1:])
    elif match["kind"] == "machines":
        made = machines_table()
    else:
        made = markdown(*climbs[0][1:])
    return f"{marker}\n{made}<!-- end -->"


def climbs_of(match: re.Match) -> list[tuple[str, Climb, list[Row]]]:
    """Folder, climb and rows of each climb that a marker names."""
    climbs = []
    for folder in match["folders"].split():
        climb, rows = read_climb(ROOT / folder)
        climbs.append((folder, climb, rows))
    return climbs


def rungs_marker(readme: str) -> re.Match | None:
    """The block of README.md that has the table of rungs."""
    for match in BLOCK.finditer(readme):
        if match["kind"] == "rungs":
            return match
    return None


def losses_table(climb: Climb, rows: list[Row]) -> str:
    """The losses of a climb without its times: of one on a busy machine."""
    headings = {"rung": "rung", "loss": "loss", "loss_change": climb.comparison.loss}
    return pipes(table(rows, headings))


def machine_of(rows: list[Row]) -> str:
    """The device of these rows, with B and T."""
    return "{device}, B={B}, T={T}".format(**first_log(rows).run)


def rungs_table(climbs: list) -> str:
    """The ten rungs: what each removes, reported and calculated; below it what was measured."""
    scripts = rungs()
    other = reported_climb()
    reported = reported_column(scripts, other)
    calculated_ms = calculated_column(scripts, RTX_4090)
    lines = [["rung", "what it removes", "A100, reported", f"RTX 4090, calculated, B={B}"]]
    for number, path in enumerate(scripts):
        name = f"[{title(path)}]({relative_name(path)})"
        lines.append([name, removes(path, other), reported[number], calculated_ms[number]])
    table = pipes([[Cell(text) for text in line] for line in lines], left=2)
    source = f"[{other['what']}]({other['url']})"
    note = f"\n*Reported*: {source}, {other['settings']}. {other['note']}\n"
    note += CALCULATED
    for climb in climbs:
        note += measured(*climb)
    if all(climb.device_type == "cpu" for _, climb, _ in climbs):
        note += f"\n{NO_GPU}\n"
    return table + note


def removes(path: Path, other: dict) -> str:
    """What a rung removes from a step, or, if it is for the loss, what others say of that."""
    loss = other["loss"].get(f"{number_of(path):02}")
    if loss:
        return f"no time; loss, reported: {loss}"
    return describe(path).get("Removes", "")


def measured(folder: str, climb: Climb, rows: list[Row]) -> str:
    """What a climb gained, in one line; another one for the rungs in cpu/ if it ran them."""
    ran = by_number(rows)
    text = f"\n*Measured here* on {machine_of(rows)}, in {climb.rounds} rounds ([logs]({folder})): "
    text += f"rung 10 is {times(ran[10])} as fast as the baseline. It trains "
    text += f"{ran[10].tok_per_s:,.0f} instead of {ran[0].tok_per_s:,.0f} tokens per second. "
    text += "Brackets have 95 % intervals; bold gains are significant.\n"
    gains = []
    for path in branch("cpu"):
        row = ran.get(number_of(path))
        if row:
            cell = gain_cell(percent(row.gain), row.gain)
            gain = f"**{cell.text}**" if cell.bold else cell.text
            gains.append(f"[{title(path)}]({relative_name(path)}) {gain}")
    if gains:
        top = ran[max(ran)]
        text += f"Two more rungs are for CPUs only, each over the one before: {', '.join(gains)}. "
        text += f"With both it is {times(top)} as fast.\n"
    return text


def times(row: Row) -> str:
    """Such as `3.4 times (3.2 to 3.6)`, against the baseline."""
    total = row.total
    text = f"{total.value:.1f} times"
    if total.low:
        text += f" ({total.low:.1f} to {total.high:.1f})"
    return text


def cards_table() -> str:
    """Five cards: the B that fits each, and what the whole ladder is calculated to bring there."""
    heads = ["card", "B to compare", "rung 10 is faster by", "B to train"]
    lines = [[*heads, "tok/s: baseline, rung 10 to train"]]
    for label, name in CARDS.items():
        card = expected(find_gpu(name))
        rates = f"{digits(card.baseline)} → {digits(card.trained)}"
        lines.append([label, f"{card.compare}", f"{card.times:.1f} times", f"{card.train}", rates])
    return pipes([[Cell(text) for text in line] for line in lines], left=1)


# In docs/your-card.md; AMD's have no data sheet here, only their memory in GB.
MORE_CARDS = ["RTX 3060", "RTX 3090", "RTX 4070", "RTX 4090", "RTX 5070 Ti", "RTX 5090", "T4"]
MORE_CARDS += ["V100 SXM2 16GB", "A10G", "L4", "A100 40GB", "A100 SXM 80GB", "H100 SXM"]
MORE_CARDS += ["H200 SXM"]
AMD = {"RX 7900 XTX": 24, "MI300X": 192}


def more_cards_table() -> str:
    """The cards of docs/your-card.md."""
    heads = ["card", "GB", "B to compare", "baseline, tok/s", "02 gains", "rung 10 is faster by"]
    lines = [[*heads, "B to train", "rung 10, tok/s"]]
    for name in MORE_CARDS:
        card = expected(LISTED[name])
        line = [name, f"{LISTED[name].memory:g}", f"{card.compare}", digits(card.baseline)]
        line += [card.tf32, f"{card.times:.1f} times", f"{card.train}", digits(card.trained)]
        lines.append(line)
    for name, memory in AMD.items():
        compare, train = batches(memory)
        lines.append([name, f"{memory}", f"{compare}", "–", "–", "–", f"{train}", "–"])
    return pipes([[Cell(text) for text in line] for line in lines], left=1)


class Expected(NamedTuple):
    """What is calculated for a card: tokens per second at B to compare and at B to train."""

    compare: int
    train: int
    baseline: float  # tok/s at B to compare
    tf32: str  # what rung 02 gains there
    times: float  # rung 10 over the baseline there
    trained: float  # tok/s of rung 10 at B to train


def expected(gpu: GPU) -> Expected:
    """A card's figures, its tok/s at the share of the roofline that others reached."""
    rates = rates_of(gpu)
    compare, train = batches(gpu.memory)
    steps = work(compare)
    untied, tf32 = (sum(roofline_ms(steps[stem], rates)) for stem in ("01_weight_tying", "02_tf32"))
    slow = sum(roofline_ms(steps["baseline"], rates))
    fast = sum(roofline_ms(steps["10_fused_adamw"], rates))
    trained = sum(roofline_ms(work(train)["10_fused_adamw"], rates))
    reached = 1e3 * BLOCK_SIZE * usual_share()
    baseline = reached * compare / slow
    gained = gain(untied, tf32)
    return Expected(compare, train, baseline, gained, slow / fast, reached * train / trained)


def batches(gigabytes: float) -> tuple[int, int]:
    """B to compare rungs and B to train, on a card sold with this much memory."""
    memory = memory_on_sale(gigabytes)
    compare = min(16, baseline_batch(memory, MODELS["gpt2"], BLOCK_SIZE))
    return compare, ddp_batch(memory, MODELS["gpt2"], BLOCK_SIZE)


def digits(rate: float) -> str:
    """Two digits, such as `44,000`."""
    return f"{float(f'{rate:.2g}'):,.0f}"


def reported_column(scripts: list[Path], other: dict) -> list[str]:
    """The reported milliseconds of each rung; empty where there are none."""
    column = []
    for path in scripts:
        ms = other["ms"].get(f"{number_of(path):02}")
        column.append(f"{ms} ms" if ms else "")
    return column


def calculated_column(scripts: list[Path], name: str) -> list[str]:
    """The roofline of each rung on this GPU."""
    rates = rates_of(find_gpu(name))
    column = []
    for path in scripts:
        if path.stem == AS_BEFORE:
            column.append("as 06")
        else:
            column.append(f"{sum(roofline_ms(work(B)[path.stem], rates)):.0f} ms")
    return column


def other_setting(run: dict[str, str]) -> str:
    """Model and text of a climb, if README.md does not show their speed; else empty."""
    setting = f"{run['model']} on {run['data']} ({run.get('data_sha256')})"
    return "" if setting == USUAL else setting


class Machine(NamedTuple):
    """A machine under logs/ and its newest climb from the baseline to rung 10 or above."""

    tok_per_s: float  # of the highest rung
    folder: Path
    climb: Climb
    ran: dict[int, Row]  # by number of the rung


def machines() -> list[Machine]:
    """Every machine under logs/, the fastest first. Only README.md's model and text count."""
    newest = {}
    for path in sorted((ROOT / "logs").glob("*/climb.json")):  # named by date
        climb, rows = read_climb(path.parent)
        ran = by_number(rows)
        complete = climb.kind == "climb" and 0 in ran and 10 in ran
        if complete and not other_setting(ran[0].log.run):
            top = ran[max(ran)]
            newest[climb.device] = Machine(top.tok_per_s, path.parent, climb, ran)
    return sorted(newest.values(), key=lambda machine: -machine.tok_per_s)


def machines_table() -> str:
    """A row for each of `machines`."""
    header = ["machine", "torch", "large half-precision matmul, TFLOP/s", "rounds"]
    header += ["tok/s of baseline", "rung 10", "top", "top / baseline", "date"]
    lines = [header]
    for machine in machines():
        lines.append(machine_line(machine.folder, machine.climb, machine.ran))
    return pipes([[Cell(text) for text in line] for line in lines], left=2)


def machine_line(folder: Path, climb: Climb, ran: dict[int, Row]) -> list[str]:
    """The texts of one machine's cells."""
    number = max(ran)
    return [
        machine_of([*ran.values()]),
        ran[0].log.run["torch"],
        f"{climb.rate('peak_flops') / 1e12:.3g}",
        f"{climb.rounds}",
        f"{ran[0].tok_per_s:.0f}",
        f"{ran[10].tok_per_s:.0f}",
        f"{ran[number].tok_per_s:.0f} ({number})",
        factor(ran[number].total),
        f"[{climb.started[:10]}]({folder.relative_to(ROOT).as_posix()})",
    ]


def by_number(rows: list[Row]) -> dict[int, Row]:
    """The rungs among the rows that ran, by number."""
    by_stem = {row.stem: row for row in rows if row.logs}
    ran = {}
    for path in rungs_for("cpu"):
        if path.stem in by_stem:
            ran[number_of(path)] = by_stem[path.stem]
    return ran
