"""The parts of README.md and RUNLOG.md that are made from logs."""

import re
from pathlib import Path
from typing import NamedTuple

from fewer_steps import START, TUNED, by_stem, own_steps, record_minutes, shares

from ladder.cli import BLOCK_SIZE, MODELS
from ladder.commands.roofline import LISTED, speed_change, usual_share
from ladder.corpus import TINYSHAKESPEARE_SHA256
from ladder.files import ROOT
from ladder.machine import find_gpu
from ladder.measure.climb import Climb
from ladder.measure.docstrings import describe, title
from ladder.measure.rates import measured as measured_rates
from ladder.measure.rates import rates_of
from ladder.measure.rows import Row, first_log, read_climb
from ladder.measure.scripts import base_of, branch, number_of, relative_name, rungs, rungs_for
from ladder.measure.stats import Estimate
from ladder.measure.work import AS_BEFORE, roofline_ms, work
from ladder.memory import baseline_batch, ddp_batch, memory_on_sale
from ladder.show.chart import embedded
from ladder.show.diffs import diff_lines
from ladder.show.reported import reported_climb
from ladder.show.tables import (
    Cell,
    factor,
    gain_cell,
    loss_change,
    markdown,
    percent,
    pipes,
    table,
    with_interval,
)

A100 = "NVIDIA A100-SXM4-80GB"
RTX_4070 = "NVIDIA GeForce RTX 4070"
B = 16  # of the reported climb
NO_BREAK = "\N{NO-BREAK SPACE}"
STEP_TOKENS = 524288  # after which ddp_run.py updates the weights, on a GPU
NO_GPU = "No GPU has been measured here yet: [send us yours](CONTRIBUTING.md#send-a-climb)."
# Names of ladder.commands.roofline.LISTED.
CARDS = ["RTX 4070", "RTX 3090", "RTX 4090", "A100 SXM 80GB", "H100 SXM"]
MORE_CARDS = ["RTX 3060", "RTX 3090", "RTX 4070", "RTX 4090", "RTX 5070 Ti", "RTX 5090", "T4"]
MORE_CARDS += ["V100 SXM2 16GB", "A10G", "L4", "A100 40GB", "A100 SXM 80GB", "H100 SXM"]
MORE_CARDS += ["H200 SXM"]
AMD = {"RX 7900 XTX": 24, "MI300X": 192}  # without data sheet here: their memory in GB
RECORDS = """*Reported*: minutes to 3.28 on 8 H100, at another batch: the
[record](docs/reported.md#what-else-helps-modded-nanogpts-ladders) that brought the idea, with
others.
"""
USUAL = f"gpt2 on tinyshakespeare ({TINYSHAKESPEARE_SHA256[:12]})"  # of README.md's tables


def render(text: str) -> str:
    """`text` with every block between markers made again from the logs that its marker names."""
    return BLOCK.sub(block, text)


def block(match: re.Match) -> str:
    """One block with its markers, made from its logs."""
    marker = match[0].partition("\n")[0]
    made = MAKERS[match["name"]](*read_climbs(match["folders"]))
    made = re.sub(r"\([^()]*…[^()]*\)", lambda interval: interval[0].replace(" ", NO_BREAK), made)
    return f"{marker}\n{made}<!-- end -->"


def read_climbs(folders: str) -> list[tuple[str, Climb, list[Row]]]:
    """Folder, climb and rows of each climb that a marker names."""
    return [(folder, *read_climb(ROOT / folder)) for folder in folders.split()]


def measured_climbs() -> list[tuple[str, Climb, list[Row]]]:
    """The climbs that README.md shows."""
    return marked_climbs("measured")


def beyond_climbs() -> list[tuple[str, Climb, list[Row]]]:
    """The climb of the second staircase that README.md shows, if it shows one."""
    return marked_climbs("beyond")


def marked_climbs(name: str) -> list[tuple[str, Climb, list[Row]]]:
    """The climbs of the block of this name in README.md."""
    readme = (ROOT / "README.md").read_text("utf-8")
    climbs = []
    for folders in re.findall(f"<!-- {name} (.*?) -->", readme):
        climbs += read_climbs(folders)
    return climbs


def full_table(of_climb: tuple) -> str:
    """The table of a climb."""
    return markdown(*of_climb[1:])


def losses_table(of_climb: tuple) -> str:
    """The losses of a climb without its times: of one on a busy machine."""
    _, climb, rows = of_climb
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
    note += " rounded.*"
    return f"{embedded('ladder', alt, 'docs/')}\n\n{note}\n"


def reported_rungs() -> list[Path]:
    """The rungs with a reported time of their own."""
    ms = reported_climb()["ms"]
    return [path for path in rungs() if f"{number_of(path):02}" in ms]


def rungs_table() -> str:
    """The ten rungs: how much each changes, what it removes, reported and calculated times."""
    other = reported_climb()
    gpu = find_gpu(RTX_4070)
    compare, _ = batches(gpu.memory)
    steps = work(compare)
    heads = ["rung", "lines changed", "it removes", f"A100, reported, B={B}"]
    lines = [[*heads, f"RTX 4070, calculated, B={compare}"]]
    for path in rungs():
        ms = other["ms"].get(f"{number_of(path):02}")
        calculated = f"{sum(roofline_ms(steps[path.stem], rates_of(gpu))):.0f} ms"
        line = [f"[{title(path)}]({relative_name(path)})", lines_changed(path)]
        line += [describe(path).get("Removes", "").removeprefix("nothing: ")]
        line += [f"{ms} ms" if ms else "", "as 06" if path.stem == AS_BEFORE else calculated]
        lines.append(line)
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
    signs = [line[0] for line in diff_lines(base, path)[2:] if line[1:].strip()]
    return f"+{signs.count('+')} −{signs.count('-')}".removesuffix(" −0")


def measured(*climbs: tuple) -> str:
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
            sure = "is" if row.gain.significant else "is not clearly"
            gains.append(f"rung {number} {sure} faster, {percent(row.gain)}")
    folder = newest.relative_to(ROOT).as_posix()
    text = f"Beside transformers' GPT-2 with rung 10's techniques, in [another climb]({folder}), "
    return f"{text}{', and '.join(gains)}.\n"


def summary(folder: str, climb: Climb, rows: list[Row]) -> str:
    """What a climb gained: its chart, and in words from the baseline to rung 10 and to the top."""
    ran = by_number(rows)
    top = max(ran)
    alt = f"A bar for each rung, {ran[0].ms:,.0f} ms a step for the baseline, {ran[top].ms:,.0f} "
    alt += f"for rung {top}, and what each gains over the one before, with its interval"
    text = f"{embedded(f'measured-{climb.device_type}', alt, 'docs/')}\n\n"
    text += f"*{machine_of(rows)}, {climb.rounds_begun} rounds ([logs]({folder})). Intervals "
    text += "are of 95 %; filled dots are significant.*\n\n"
    text += f"Rung 10 is {factor(ran[10].total)} as fast as the baseline"
    if top > 10:
        text += f", rung {top} {factor(ran[top].total)}"
    return (
        f"{text}: {ran[top].tok_per_s:,.0f} instead of {ran[0].tok_per_s:,.0f} tokens a second.\n"
    )


def beyond_table(of_climb: tuple) -> str:
    """README.md's second table: what the rungs of beyond/ do to the loss, and how fast the others
    were with whom the ideas came."""
    folder, _, rows = of_climb
    heads = ["rung", "lines changed", "loss vs. previous, nats, measured"]
    lines = [[Cell(text) for text in [*heads, "modded-nanogpt, minutes, reported"]]]
    minutes = record_minutes()
    for path in branch("beyond"):
        lines.append([*changes(path, rows), Cell(minutes[number_of(path)])])
    text = f"{pipes(lines, left=2)}\n*Measured*: {how_far(rows)}; "
    return f"{text}{setting_of(rows)} ([logs]({folder})).\n\n{RECORDS}"


def staircase(of_climb: tuple) -> str:
    """The picture and the table of beyond/README.md."""
    folder, _, rows = of_climb
    alt = f"Loss over the steps of rung 10 and of each rung of this folder. {how_far(rows)}"
    ran = by_stem(rows)
    tuned, start = (f"{own_steps(ran[stem]):,.0f}" for stem in (TUNED, START))
    return f"""{embedded("beyond", alt, "../docs/")}

*{setting_of(rows)} ([logs](../{folder})). Lines: the running mean of a tenth of the steps, its mean
over the seeds. Bands: from the lowest seed to the highest. Dots: where a line comes down to where
21 or 10 ends.*

{pipes(steps_table(rows))}
*Steps*: to the loss at which 21 or 10 ends, as a share of the {tuned} or {start} in which it comes
down to that itself. Bold: significant.
"""


def steps_table(rows: list[Row]) -> list[list[Cell]]:
    """Rung 10 and those of beyond/: what each does to the loss, and its `shares`."""
    columns = {"steps to 21's loss": shares(rows, TUNED), "steps to 10's": shares(rows, START)}
    heads = ["rung", "loss vs. previous, nats", *columns]
    lines = [[Cell(text) for text in heads]]
    for path in [rungs()[-1], *branch("beyond")]:
        rung, _, loss = changes(path, rows, "../")
        line = [rung, loss]
        for found in columns.values():
            line.append(share_cell(found, path.stem))
        lines.append(line)
    return lines


def changes(path: Path, rows: list[Row], to_root="") -> list[Cell]:
    """A rung, its lines changed, and what it does to the loss."""
    row = by_stem(rows).get(path.stem)
    change = row.loss_change if row else None
    link = Cell(f"[{title(path)}]({to_root}{relative_name(path)})")
    return [link, Cell(lines_changed(path)), gain_cell(loss_change(change), change)]


def share_cell(found: dict[str, Estimate | None], stem: str) -> Cell:
    """One of `shares`; a dash for the row that they are shares of."""
    if stem not in found:
        return Cell("–")
    share = found[stem]
    return gain_cell(factor(share) if share else "not reached", share)


def how_far(rows: list[Row]) -> str:
    """In which share of the steps of 21 and of 10 the top gets to the losses at which these end."""
    top = [*by_stem(rows)][-1]
    parts = []
    for target, whose in ((TUNED, "21, the better start,"), (START, "rung 10")):
        share = shares(rows, target)[top]
        how = f"in {part_of(share)} of its steps" if share else "in none of its steps"
        parts.append(f"to the final loss of {whose} {how}")
    return f"Rung {top[:2]} gets {', and '.join(parts)}"


def part_of(share: Estimate) -> str:
    """`0.61 (0.58 … 0.64)`."""
    return with_interval(share, "{:.2f}".format, "")


def setting_of(rows: list[Row]) -> str:
    """Model, machine and text of a climb, and its seeds."""
    run = first_log(rows).run
    rounds = sorted({len(row.logs) for row in by_stem(rows).values()})
    seeds = f"{rounds[0]}" if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}"
    steps = f"{int(run['steps']):,} steps of {run['data']}"
    return f"{run['model']}, {machine_of(rows)}, {steps}, {seeds} seeds"


def cards_table() -> str:
    """The cards of README.md."""
    return pipes(card_lines(CARDS))


def more_cards_table() -> str:
    """The cards of docs/your-card.md."""
    lines = card_lines(MORE_CARDS)
    for name, memory in AMD.items():
        compare, train = batches(memory)
        line = [name, f"{memory}", f"{compare}", "–", "–", "–", f"{train}", "–"]
        lines.append([Cell(text) for text in line])
    return pipes(lines)


def card_lines(names: list[str]) -> list[list[Cell]]:
    """Headings, and of each card the B that fit it and what is calculated there, its tok/s at the
    share of the roofline that others reached. A star: its rates are estimated."""
    heads = ["card", "GB", "B to compare", "baseline, tok/s", "02 gains", "speed of rung 10"]
    lines = [[*heads, "B to train", "ddp_run.py, tok/s"]]
    reached = 1e3 * BLOCK_SIZE * usual_share()
    for name in names:
        gpu = LISTED[name]
        rates = rates_of(gpu)
        compare, train = batches(gpu.memory)
        ms = {stem: sum(roofline_ms(step, rates)) for stem, step in work(compare).items()}
        *batch, update = roofline_ms(work(train)["10_fused_adamw"], rates)
        trained = sum(batch) + update * train * BLOCK_SIZE / STEP_TOKENS
        star = "" if gpu.name in measured_rates() else r"\*"
        line = [f"{name}{star}", f"{gpu.memory:g}", f"{compare}"]
        line += [digits(reached * compare / ms["baseline"])]
        line += [speed_change(ms["01_weight_tying"], ms["02_tf32"])]
        line += [f"{ms['baseline'] / ms['10_fused_adamw']:.1f} times", f"{train}"]
        lines.append([*line, digits(reached * train / trained)])
    return [[Cell(text) for text in line] for line in lines]


def batches(gigabytes: float) -> tuple[int, int]:
    """B to compare rungs and B to train, on a card sold with this much memory."""
    memory = memory_on_sale(gigabytes)
    compare = min(16, baseline_batch(memory, MODELS["gpt2"], BLOCK_SIZE))
    return compare, ddp_batch(memory, MODELS["gpt2"], BLOCK_SIZE)


def digits(rate: float) -> str:
    """Two digits, such as `44,000`."""
    return f"{float(f'{rate:.2g}'):,.0f}"


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
    lines = [[*header, "top / baseline", "date"]]
    for _, folder, climb, ran in machines():
        top = max(ran)
        line = [machine_of([*ran.values()]), f"{climb.rate('peak_flops') / 1e12:.3g}"]
        line += [f"{ran[number].tok_per_s:.0f}" for number in (0, 10)]
        line += [f"{ran[top].tok_per_s:.0f} ({top})", factor(ran[top].total)]
        link = folder.relative_to(ROOT).as_posix()
        lines.append([*line, f"[{climb.started[:10]}]({link})"])
    return pipes([[Cell(text) for text in line] for line in lines])


def by_number(rows: list[Row]) -> dict[int, Row]:
    """The rungs among the rows that ran, by number."""
    numbers = {path.stem: number_of(path) for path in rungs_for("cpu")}
    ran = {numbers[row.stem]: row for row in rows if row.logs and row.stem in numbers}
    return dict(sorted(ran.items()))


# What makes a block: in README.md `measured` names a climb on a GPU, one on a CPU or both; in
# RUNLOG.md each entry has the table of one climb, or its losses alone if the machine was busy, and
# the machines are all of logs/. `beyond` in README.md and `staircase` in beyond/README.md name one
# climb.
MAKERS = {
    "ladder": ladder_picture,
    "measured": measured,
    "rungs": rungs_table,
    "beyond": beyond_table,
    "staircase": staircase,
    "cards": cards_table,
    "more-cards": more_cards_table,
    "machines": machines_table,
    "table": full_table,
    "losses": losses_table,
}
BLOCK = re.compile(
    rf"<!-- (?P<name>{'|'.join(MAKERS)})(?P<folders>( \S+)*) -->\n.*?<!-- end -->", re.DOTALL
)
