"""The parts of README.md and RUNLOG.md that are made from logs."""

import re
from pathlib import Path
from typing import NamedTuple

from svg import embedded

from ladder.cli import BLOCK_SIZE, MODELS
from ladder.commands.roofline import LISTED, speed_change, usual_share
from ladder.corpus import TINYSHAKESPEARE_SHA256
from ladder.files import ROOT
from ladder.machine import GPU, find_gpu
from ladder.measure.climb import Climb
from ladder.measure.docstrings import describe, title
from ladder.measure.rates import measured as measured_rates
from ladder.measure.rates import rates_of
from ladder.measure.rows import Row, first_log, read_climb
from ladder.measure.scripts import base_of, number_of, relative_name, rungs, rungs_for
from ladder.measure.stats import Estimate
from ladder.measure.work import AS_BEFORE, roofline_ms, work
from ladder.memory import baseline_batch, ddp_batch, memory_on_sale
from ladder.show.diffs import diff_lines
from ladder.show.reported import reported_climb
from ladder.show.tables import Cell, factor, markdown, pipes, table

# In README.md `measured` names a climb on a GPU, one on a CPU or both, `rungs` and `cards` are
# tables; in RUNLOG.md each entry has the table of one climb, or its losses alone if the machine was
# busy, and the machines are all of logs/.
BLOCK = re.compile(
    r"<!-- (?P<name>ladder|measured|rungs|cards|more-cards|machines|table|losses)"
    r"(?P<folders>( \S+)*) -->"
    r"\n.*?<!-- end -->",
    re.DOTALL,
)
A100 = "NVIDIA A100-SXM4-80GB"
RTX_4070 = "NVIDIA GeForce RTX 4070"
B = 16  # of the reported climb
NO_GPU = "No GPU has been measured here yet: [send us yours](CONTRIBUTING.md#send-a-climb)."
CARDS = {
    "RTX 4070, 12 GB": RTX_4070,
    "RTX 3090, 24 GB": "NVIDIA GeForce RTX 3090",
    "RTX 4090, 24 GB": "NVIDIA GeForce RTX 4090",
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
    if match["name"] == "ladder":
        made = ladder_picture()
    elif match["name"] == "measured":
        made = measured(climbs)
    elif match["name"] == "rungs":
        made = rungs_table()
    elif match["name"] == "cards":
        made = cards_table()
    elif match["name"] == "more-cards":
        made = more_cards_table()
    elif match["name"] == "losses":
        made = losses_table(*climbs[0][1:])
    elif match["name"] == "machines":
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


def measured_marker(readme: str) -> re.Match | None:
    """The block of README.md that names the climbs which it shows."""
    for match in BLOCK.finditer(readme):
        if match["name"] == "measured":
            return match
    return None


def losses_table(climb: Climb, rows: list[Row]) -> str:
    """The losses of a climb without its times: of one on a busy machine."""
    headings = {"rung": "rung", "loss": "loss", "loss_change": climb.comparison.loss_heading}
    return pipes(table(rows, headings))


def machine_of(rows: list[Row]) -> str:
    """The device of these rows, with B and T."""
    return "{device}, B={B}, T={T}".format(**first_log(rows).run)


def ladder_picture() -> str:
    """The picture of the reported climb, and whose times it has."""
    other = reported_climb()
    ms = other["ms"]
    alt = f"A bar for each rung, with the line it adds: {ms['00']} ms a step for the baseline, "
    alt += f"{ms['10']} for rung 10, on one A100, reported by {other['who']}"
    note = f"*Green: the heart of the diff. Times: [{other['who']}'s lecture]({other['url']}),"
    note += " rounded; 01 and 04 are in the 1000, 08 and 09 in the 90.*"
    return f"{embedded('ladder', alt, 'docs/')}\n\n{note}\n"


def reported_rungs() -> list[Path]:
    """The rungs with a reported time of their own."""
    ms = reported_climb()["ms"]
    return [path for path in rungs() if f"{number_of(path):02}" in ms]


def rungs_table() -> str:
    """The ten rungs: how much each changes, what it removes, reported and calculated times."""
    scripts = rungs()
    other = reported_climb()
    reported = reported_column(scripts, other)
    gpu = find_gpu(RTX_4070)
    compare = min(16, baseline_batch(memory_on_sale(gpu.memory), MODELS["gpt2"], BLOCK_SIZE))
    calculated = calculated_column(scripts, gpu, compare)
    heads = ["rung", "lines changed", "it removes", "A100, reported"]
    lines = [[*heads, f"RTX 4070, calculated, B={compare}"]]
    for path, reported_ms, calculated_ms in zip(scripts, reported, calculated, strict=True):
        name = f"[{title(path)}]({relative_name(path)})"
        what = describe(path).get("Removes", "").removeprefix("nothing: ")
        lines.append([name, lines_changed(path), what, reported_ms, calculated_ms])
    table = pipes([[Cell(text) for text in line] for line in lines], left=3)
    source = f"[{other['what']}]({other['url']})"
    return f"""{table}
*Reported*: {source}, {other["settings"]}. {other["note"]}

*Calculated*: the [roofline](docs/measuring.md#how-work-is-counted), an estimate of the shortest
step. It cannot see what aligned rows gain (07).
"""


def lines_changed(path: Path) -> str:
    """How many lines of code a rung adds and removes, such as `+2 −5`, blank ones left out."""
    base = base_of(path)
    if base is None:
        return ""
    changed = [line for line in diff_lines(base, path)[2:] if line[1:].strip()]
    added = sum(line.startswith("+") for line in changed)
    removed = sum(line.startswith("-") for line in changed)
    return f"+{added} −{removed}" if removed else f"+{added}"


def measured(climbs: list) -> str:
    """Chart and summary of each climb that README.md shows, then how others compare."""
    text = "\n".join(summary(*climb) for climb in climbs)
    text += beside_transformers()
    if all(climb.device_type == "cpu" for _, climb, _ in climbs):
        text += f"\n{NO_GPU}\n"
    return text


def beside_transformers() -> str:
    """The gains over transformers' GPT-2 in the newest climb that has it, if there is one."""
    newest = None
    for path in sorted((ROOT / "logs").glob("*/climb.json")):  # named by date
        if Climb.read_from(path.parent).kind == "transformers":
            newest = path.parent
    if newest is None:
        return ""
    gains = []
    for number, row in by_number(read_climb(newest)[1]).items():
        if number >= 10:
            gain = f"rung {number} gains {gain_words(row.gain)}"
            clear = row.gain.low is not None and not row.gain.low <= 1 <= row.gain.high
            gains.append(gain if clear else f"{gain}, which is not clear")
    folder = newest.relative_to(ROOT).as_posix()
    text = f"Over transformers' GPT-2 with rung 10's techniques, in [another climb]({folder}): "
    return f"{text}{'; '.join(gains)}.\n"


def summary(folder: str, climb: Climb, rows: list[Row]) -> str:
    """What a climb gained: its chart, and in words from the baseline to rung 10 and to the top."""
    ran = by_number(rows)
    top = max(ran)
    alt = f"A bar for each rung, {ran[0].ms:,.0f} ms a step for the baseline, {ran[top].ms:,.0f} "
    alt += f"for rung {top}, and what each gains over the one before, with its interval"
    text = f"{embedded(f'measured-{climb.device_type}', alt, 'docs/')}\n\n"
    text += f"*{machine_of(rows)}, {climb.rounds_begun} rounds ([logs]({folder})). Intervals "
    text += "are of 95 %; filled dots are significant, hollow ones are not.*\n\n"
    text += f"Rung 10 is {times(ran[10])} as fast as the baseline"
    if top > 10:
        text += f". Rung {top} is {times(ran[top])} as fast"
    return (
        f"{text}: {ran[top].tok_per_s:,.0f} instead of {ran[0].tok_per_s:,.0f} tokens a second.\n"
    )


def gain_words(gain: Estimate) -> str:
    """Such as `+144 % (134 to 156)`."""
    words = percent_words(gain.value)
    if gain.low:
        words += f" ({per_cent(gain.low)} to {per_cent(gain.high)})".replace("-", "−")
    return words


def percent_words(ratio: float) -> str:
    """Such as `+20 %`, `−6 %` or `no change`."""
    return f"{per_cent(ratio):+d} %".replace("-", "−").replace("+0 %", "no change")


def per_cent(ratio: float) -> int:
    """What a ratio gains."""
    return round((ratio - 1) * 100)


def times(row: Row) -> str:
    """Such as `3.4 times (3.2 to 3.6)`, against the baseline."""
    total = row.total
    text = f"{total.value:.1f} times"
    if total.low:
        text += f" ({total.low:.1f} to {total.high:.1f})"
    return text


def cards_table() -> str:
    """Five cards: the B that fits each, and what the whole ladder is calculated to bring there."""
    heads = ["card", "B to compare", "speed of rung 10", "B to train"]
    lines = [[*heads, "tok/s: baseline, rung 10 to train"]]
    for label, name in CARDS.items():
        gpu = find_gpu(name)
        card = expected(gpu)
        label = label.replace(",", f"{mark(gpu)},")
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
    heads = ["card", "GB", "B to compare", "baseline, tok/s", "02 gains", "speed of rung 10"]
    lines = [[*heads, "B to train", "rung 10, tok/s"]]
    for name in MORE_CARDS:
        gpu = LISTED[name]
        card = expected(gpu)
        line = [f"{name}{mark(gpu)}", f"{gpu.memory:g}", f"{card.compare}", digits(card.baseline)]
        line += [card.tf32, f"{card.times:.1f} times", f"{card.train}", digits(card.trained)]
        lines.append(line)
    for name, memory in AMD.items():
        compare, train = batches(memory)
        lines.append([name, f"{memory}", f"{compare}", "–", "–", "–", f"{train}", "–"])
    return pipes([[Cell(text) for text in line] for line in lines], left=1)


def mark(gpu: GPU) -> str:
    """A star after a card that nobody measured: its rates are estimated."""
    return "" if gpu.name in measured_rates() else r"\*"


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
    gained = speed_change(untied, tf32)
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


def calculated_column(scripts: list[Path], gpu: GPU, B: int) -> list[str]:
    """The roofline of each rung on this GPU."""
    rates = rates_of(gpu)
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
    header = ["machine", "TFLOP/s, half precision", "tok/s of baseline", "rung 10", "top"]
    header += ["top / baseline", "date"]
    lines = [header]
    for machine in machines():
        lines.append(machine_line(machine.folder, machine.climb, machine.ran))
    return pipes([[Cell(text) for text in line] for line in lines])


def machine_line(folder: Path, climb: Climb, ran: dict[int, Row]) -> list[str]:
    """The texts of one machine's cells."""
    number = max(ran)
    return [
        machine_of([*ran.values()]),
        f"{climb.rate('peak_flops') / 1e12:.3g}",
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
