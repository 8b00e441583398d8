"""The parts of pages that are made: between markers, from logs, reports and counts."""

import json
import re
from html import escape
from pathlib import Path
from typing import NamedTuple

from dev.fewer_steps import START, by_stem, own_steps, shares
from dev.reports import errors_text, ladders, near_top, share_of
from ladder.checkout import ROOT
from ladder.corpus import TINYSHAKESPEARE_SHA256
from ladder.measure.folder import Climb
from ladder.measure.notes import describe, title
from ladder.measure.rates import CARDS, measured_rates, rates_of
from ladder.measure.rows import Row, first_log, read_climb, rounds_begun
from ladder.measure.scripts import branch, number_of, relative_name, rungs, rungs_for
from ladder.measure.work import AS_BEFORE, batch_to_compare, batch_to_train, roofline_ms, work
from ladder.show import words
from ladder.show.reported import hours_of, known
from ladder.show.tables import Cell, Column, all_columns, columns, footnotes, table

# The one climb in README.md that is not ours.
REPORTED = json.loads(Path(__file__).with_name("reported.json").read_text("utf-8"))
NO_GPU = "[Send us the climb of your GPU](CONTRIBUTING.md#send-a-climb)."
# Names of ladder.measure.rates.CARDS.
FIVE_CARDS = ("RTX 3090", "RTX 4090", "RTX 5090", "A100 SXM 80GB", "H100 SXM")
MORE_CARDS = (
    "RTX 3060", "RTX 3090", "RTX 4070", "RTX 4090", "RTX 5070 Ti", "RTX 5090", "T4",
    "V100 SXM2 16GB", "A10G", "L4", "A100 40GB", "A100 SXM 80GB", "H100 SXM", "H200 SXM",
)  # fmt: skip
USUAL = f"gpt2 on tinyshakespeare ({TINYSHAKESPEARE_SHA256[:12]})"  # of README.md's tables


def render(text: str) -> str:
    """`text` with every block between markers made again from the logs that its marker names."""
    return BLOCK.sub(block, text)


def block(match: re.Match) -> str:
    """One block with its markers, made from its logs."""
    marker = match[0].partition("\n")[0]
    made = MAKERS[match["name"]](*read_climbs(match["folders"]))
    return f"{marker}\n{made}<!-- end -->"


def read_climbs(folders: str) -> list[tuple[Climb, list[Row]]]:
    """Climb and rows of each folder that a marker names."""
    return [read_climb(ROOT / folder) for folder in folders.split()]


def climbs_in(page: str, name: str) -> list[tuple[Climb, list[Row]]]:
    """The climbs that the block of this name in a page shows."""
    text = (ROOT / page).read_text("utf-8")
    return read_climbs(re.search(f"<!-- {name} (.*?) -->", text)[1])


def pipes(lines: list[list[Cell]], left: tuple[int, ...] = (0,)) -> str:
    """A Markdown table. The columns of `left` are at the left, those of numbers at the right.

    Cells are no HTML.
    """
    header, *body = lines
    ruler = [Cell("---" if k in left else "---:") for k in range(len(header))]
    text = ""
    for line in [header, ruler, *body]:
        texts = []
        for k, cell in enumerate(line):
            one_line = " ".join(cell.text.replace("|", r"\|").split())
            if line is not header and k not in left:  # a number stays on one line
                one_line = one_line.replace(" ", "\N{NO-BREAK SPACE}")
            texts.append(f"**{one_line}**" if cell.bold else one_line)
        text += f"| {' | '.join(texts)} |\n"
    return text.replace("<", "&lt;")


def text_table(heads: list[str], lines: list[list[str]], left: tuple[int, ...] = (0,)) -> str:
    """A Markdown table; the columns of `left` are at the left."""
    return pipes([[Cell(text) for text in line] for line in [heads, *lines]], left)


def embedded(name: str, alt: str, folder: str) -> str:
    """The HTML that shows docs/<name>.svg, or its narrow variant on a small screen."""
    source = f'<source media="(max-width: 600px)" srcset="{folder}{name}-narrow.svg">'
    image = f'<img src="{folder}{name}.svg" alt="{escape(alt)}">'
    return f"<picture>{source}{image}</picture>"


def machine_of(rows: list[Row]) -> str:
    """The device of these rows, with B and T."""
    return "{device}, B={B}, T={T}".format(**first_log(rows).run)


def by_number(rows: list[Row]) -> dict[int, Row]:
    """The rungs among the rows that ran, by number."""
    ran = {row.stem: row for row in rows if row.logs}
    return {number_of(path): ran[path.stem] for path in rungs_for("cpu") if path.stem in ran}


def full_table(of_climb: tuple) -> str:
    """The table of a climb, and what has to be said of it.

    It has few columns, which a page shows without a scroll bar: `ladder report` has them all.
    """
    climb, rows = of_climb
    text = pipes(table(rows, columns(climb, rows, narrow=True)))
    for line in footnotes(climb, rows):
        text += f"\n{line}\n".replace("<", "&lt;")
    return text


def losses_table(of_climb: tuple) -> str:
    """The losses of a climb without its times: of one on a busy machine."""
    climb, rows = of_climb
    found = all_columns(climb, rows)
    return pipes(table(rows, [found["rung"], found["loss"], found["change"]]))


def measured(*climbs: tuple) -> str:
    """Chart and summary of each climb that README.md shows."""
    text = "\n".join(summary(*climb) for climb in climbs)
    if all(climb.device_type == "cpu" for climb, _ in climbs):
        text += f"\n{NO_GPU}\n"
    return text


def summary(climb: Climb, rows: list[Row]) -> str:
    """What a climb gained: its chart, and in words from the baseline to rung 10 and to the top."""
    ran = by_number(rows)
    first, top = ran[0], ran[max(ran)]
    alt = f"Milliseconds a step: {first.ms:,.0f} for the baseline, {top.ms:,.0f} for rung "
    alt += f"{max(ran)}, and each gain"
    more = ""
    if max(ran) > 10:
        more = f"; rung {max(ran)}, for [CPUs](cpu), {top.total.value:.1f} times"
    return f"""*{machine_of(rows)}, {rounds_begun(rows)} rounds \
([logs]({relative_name(climb.folder)})), intervals of 95 %.*

{embedded(f"measured-{climb.device_type}", alt, "docs/")}

Rung 10 is {ran[10].total.value:.1f} times as fast as the baseline{more}.
"""


# ------------------------------------------------------------------ the ten rungs


def ladder_picture() -> str:
    """The picture of the reported climb, and whose times it has."""
    ms = REPORTED["ms"]
    alt = (
        f"Milliseconds a step: {ms['00']} for the baseline, {ms['10']} for rung 10, with each diff"
    )
    note = f"*Reported, rounded ([lecture]({REPORTED['url']})): the six rungs of ten that he timed."
    return f"{note} Green: the heart of each diff.*\n\n{embedded('ladder', alt, 'docs/')}\n"


def rungs_table() -> str:
    """The ten rungs: calculated times, reported gains, and what each removes."""
    gpu = CARDS[FIVE_CARDS[0]]
    compare = batch_to_compare(gpu)
    lines = []
    for path in rungs():
        step = work(compare)[path.stem]
        ms = f"{sum(roofline_ms(step, rates_of(gpu))):.0f}"
        lines.append(
            [
                f"[{title(path)}]({relative_name(path)})",
                "as 06" if path.stem == AS_BEFORE else ms,
                reported_gain(gpu.name, path.stem),
                describe(path).get("Removes", "").removeprefix("nothing: "),
            ]
        )
    heads = ["rung", "ms", "reported", "what it removes"]
    return f"""Milliseconds of a step on an {gpu.name} at a batch of {compare} (*calculated*, by the
[roofline](docs/measuring.md#how-work-is-counted)), and gains that [somebody
reported](docs/reported.md#ladders).

{text_table(heads, lines, left=(0, 3))}"""


def reported_gain(name: str, stem: str) -> str:
    """What a rung gained on a card over the one timed before it, as reported; else nothing."""
    before = None
    for row in ladders()[name]:
        if before and row["rung"] == stem:
            return words.gain_text(row["tok_per_s"] / before)
        before = row["tok_per_s"]
    return ""


# ------------------------------------------------------------------ the second staircase


def staircase(*climbs: tuple) -> str:
    """The picture and the table of beyond/README.md: what each rung does to these models."""
    settings = []
    lines = [[Cell("rung")]]
    for path in staircase_rungs():
        lines.append([Cell(f"[{title(path)}](../{relative_name(path)})")])
    for climb, rows in climbs:
        ran = by_stem(rows)
        run = first_log(rows).run
        what = f"{run['steps']} steps of {run['data']}, {machine_of(rows)}, {rounds_text(rows)}"
        took = f"10 took {own_steps(ran[START]):,.0f} steps"
        logs = f"[logs](../{relative_name(climb.folder)})"
        settings.append(f"{run['model']}: {what} ({logs}); {took}")
        shown = [ran.get(path.stem, Row(path.stem, {})) for path in staircase_rungs()]
        cells = table(shown, staircase_columns(climb, rows))
        for line, two in zip(lines, cells, strict=True):
            line += two
    alt = "Loss over the steps of rung 10 and of each rung of this folder"
    return f"""*Lines: the running mean of a tenth of the steps, its mean over the seeds. Bands:
from the lowest seed to the highest. Dots: from where on a line stays below where 10 ends.*

{embedded("beyond", alt, "../docs/")}

{pipes(lines)}
*Steps*: until the running mean stays at or below 10's final loss, as a share of 10's own steps to
it. Bold: significant. {". ".join(settings)}.
"""


def staircase_rungs() -> list[Path]:
    """Rung 10, where the second staircase begins, and its own rungs."""
    return [rungs()[-1], *branch("beyond")]


def rounds_text(rows: list[Row]) -> str:
    """How many rounds the rows have: `2 to 3 rounds, a seed each`."""
    counts = {len(row.logs) for row in by_stem(rows).values()}
    least = f"{min(counts)} to " if len(counts) > 1 else ""
    return f"{least}{max(counts)} rounds, a seed each"


def staircase_columns(climb: Climb, rows: list[Row]) -> list[Column]:
    """What a rung does to the loss, and its share of rung 10's steps; dashes if it did not run."""
    change = all_columns(climb, rows)["change"]
    change = change._replace(heading=f"{first_log(rows).run['model']}: {change.heading}")
    found = shares(rows)

    def missing(row: Row) -> str:
        return "not reached" if row.stem in found else "–"

    steps = "steps to 10's loss"
    return [change, Column(steps, lambda row: found.get(row.stem), words.share, missing)]


# ------------------------------------------------------------------ cards


def cards_table() -> str:
    """The cards of README.md: what they gain, and what training takes."""
    lines = [[*known_texts(name, "docs/"), hours_of(name)] for name in FIVE_CARDS]
    return text_table(["card", GAIN, "in training", "tok/s", "hours, 1,000 steps"], lines)


def more_cards_table() -> str:
    """The cards of docs/your-card.md."""
    lines = []
    for name in MORE_CARDS:
        gpu = CARDS[name]
        card, gain, in_training, rate = known_texts(name, "")
        compare, train = f"{batch_to_compare(gpu)}", f"{batch_to_train(gpu)}"
        lines.append([card, f"{gpu.memory:g}", compare, gain, train, in_training, rate])
    heads = ["card", "GB", "B to compare", GAIN, "B to train", "in training"]
    return text_table([*heads, "`ddp_run.py`, tok/s"], lines)


GAIN = "rung 10 over the baseline, times"
# What is known of a card, and where docs/reported.md has such reports.
CELLS = {"gain": "ladders", "training_gain": "ladders", "training": "nearly-rung-10"}


def known_texts(name: str, docs: str) -> list[str]:
    """A card and what is known of it: reported, with a link, or calculated. A star: its rates are
    estimated."""
    texts = [name if name in measured_rates() else rf"{name}\*"]
    for key, place in CELLS.items():
        text = known()[name][key].removesuffix(" (calculated)").replace("calculated, ", "")
        texts.append(text.replace("reported", f"[reported]({docs}reported.md#{place})"))
    return texts


def reports_table() -> str:
    """The reports near rung 10 in docs/reported.md, the fastest first."""
    lines = []
    for row in near_top():
        who = f"[{row['who']}]({row['source']})"
        share = f"{share_of(row) * 100:.0f} %"
        rate = f"{row['tok_per_s']:,.0f}"
        lines.append([row["gpu"], who, f"{row['B']:.0f}", rate, share, row["differs"]])
    heads = ["card", "who", "B", "tok/s", "of the roofline", "differs in"]
    return text_table(heads, lines, left=(0, 1, 5))


def ladders_table() -> str:
    """The reported ladders: what each rung gained there over the one timed before it."""
    lines = []
    for path in rungs()[2:]:
        gains = [reported_gain(name, path.stem) for name in ladders()]
        if any(gains):
            lines.append([title(path), *gains])
    return text_table(["rung", *ladders()], lines)


# ------------------------------------------------------------------ machines


def other_setting(run: dict[str, str]) -> str:
    """Model and text of a climb, if README.md does not show their speed; else empty."""
    setting = f"{run['model']} on {run['data']} ({run.get('data_sha256')})"
    return "" if setting == USUAL else setting


class Machine(NamedTuple):
    """A machine under logs/ and its newest climb from the baseline to rung 10 or above."""

    climb: Climb
    ran: dict[int, Row]  # by number of the rung
    top: Row


def machines() -> list[Machine]:
    """Every machine under logs/, the fastest first. Only README.md's model and text count.

    Of two that share a name one may lack bfloat16 units. Rung 03 once emulated them there: of such
    a climb today's code knows nothing.
    """
    newest = {}
    for path in sorted((ROOT / "logs").glob("*/climb.json")):  # by date
        climb, rows = read_climb(path.parent)
        ran = by_number(rows)
        full = climb.kind == "climb" and 0 in ran and 10 in ran
        if full and not other_setting(ran[0].log.run) and not emulates(climb):
            newest[climb.device, climb.peak_dtype] = Machine(climb, ran, ran[max(ran)])
    return sorted(newest.values(), key=lambda machine: -machine.top.tok_per_s)


def emulates(climb: Climb) -> bool:
    """Whether a CPU multiplied bfloat16 slower than FP32."""
    return climb.peak_dtype == "bfloat16" and climb.matmul_flops > climb.rate("peak_flops")


def machines_table() -> str:
    """A row for each of `machines`."""
    lines = []
    for climb, ran, top in machines():
        lines.append(
            [
                machine_of([top]),
                f"{climb.matmul_flops / 1e12:.3g} ({climb.peak_dtype})",
                f"{ran[0].tok_per_s:.0f}",
                f"{ran[10].tok_per_s:.0f}",
                f"{top.tok_per_s:.0f} ({max(ran)})",
                words.gain(top.total),
                f"[{climb.started[:10]}]({relative_name(climb.folder)})",
            ]
        )
    heads = ["machine", "TFLOP/s of a large matmul", "tok/s of baseline", "rung 10", "top"]
    return text_table([*heads, "top / baseline", "date"], lines)


# What makes a block: in README.md `measured` names a climb on a GPU, one on a CPU or both; in
# RUNLOG.md each entry has the table of one climb, or its losses alone if the machine was busy, and
# the machines are all of logs/. `staircase` in beyond/README.md names a climb for each model.
MAKERS = {
    "ladder": ladder_picture,
    "measured": measured,
    "rungs": rungs_table,
    "staircase": staircase,
    "cards": cards_table,
    "more-cards": more_cards_table,
    "reports": reports_table,
    "ladders": ladders_table,
    "errors": errors_text,
    "machines": machines_table,
    "table": full_table,
    "losses": losses_table,
}
BLOCK = re.compile(
    rf"<!-- (?P<name>{'|'.join(MAKERS)})(?P<folders>( \S+)*) -->\n.*?<!-- end -->", re.DOTALL
)
