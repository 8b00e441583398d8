"""The parts of pages that show climbs, from the logs that a marker names."""

import re
from pathlib import Path
from typing import NamedTuple

from dev.fewer_steps import START, by_stem, own_steps, shares
from dev.markdown import embedded, pipes, text_table
from ladder.checkout import ROOT
from ladder.corpus import TINYSHAKESPEARE_SHA256
from ladder.measure.folder import Climb
from ladder.measure.notes import title
from ladder.measure.rows import Results, Row, read_climb
from ladder.measure.scripts import branch, number_of, relative_name, rungs, rungs_for
from ladder.show import words
from ladder.show.tables import Cell, Column, all_columns, columns, footnotes, table

NO_GPU = "[Send us the climb of your GPU](CONTRIBUTING.md#send-a-climb)."
USUAL = f"gpt2 on tinyshakespeare ({TINYSHAKESPEARE_SHA256[:12]})"  # of README.md's tables


def read_climbs(folders: str) -> list[Results]:
    """The climb in each folder that a marker names."""
    return [read_climb(ROOT / folder) for folder in folders.split()]


def climbs_in(page: str, name: str) -> list[Results]:
    """The climbs that the block of this name in a page shows."""
    text = (ROOT / page).read_text("utf-8")
    return read_climbs(re.search(f"<!-- {name} (.*?) -->", text)[1])


def machine_of(run: dict) -> str:
    """The device of a run line, with B and T."""
    return "{device}, B={B}, T={T}".format(**run)


def by_number(rows: list[Row]) -> dict[int, Row]:
    """The rungs among the rows that ran, by number."""
    ran = {row.stem: row for row in rows if row.logs}
    return {number_of(path): ran[path.stem] for path in rungs_for("cpu") if path.stem in ran}


def full_table(results: Results) -> str:
    """The table of a climb, and what has to be said of it.

    It has few columns, which a page shows without a scroll bar: `ladder report` has them all.
    """
    text = pipes(table(results.rows, columns(results, narrow=True)))
    for line in footnotes(results):
        text += f"\n{line}\n".replace("<", "&lt;")
    return text


def losses_table(results: Results) -> str:
    """The losses of a climb without its times: of one on a busy machine."""
    found = all_columns(results)
    return pipes(table(results.rows, [found["rung"], found["loss"], found["change"]]))


def measured(*climbs: Results) -> str:
    """Chart and summary of each climb that README.md shows."""
    text = "\n".join(map(summary, climbs))
    if all(results.climb.device_type == "cpu" for results in climbs):
        text += f"\n{NO_GPU}\n"
    return text


def summary(results: Results) -> str:
    """What a climb gained: its chart, and in words from the baseline to rung 10 and to the top."""
    climb = results.climb
    ran = by_number(results.rows)
    first, top = ran[0], ran[max(ran)]
    alt = f"Milliseconds a step: {first.ms:,.0f} for the baseline, {top.ms:,.0f} for rung "
    alt += f"{max(ran)}, and each gain"
    more = ""
    if max(ran) > 10:
        more = f", {words.gain(top.total)} for rung {max(ran)}, which is for [CPUs](cpu)"
    return f"""*{machine_of(results.log.run)}, {results.rounds_begun} rounds \
([logs]({relative_name(climb.folder)})), intervals of 95 %.*

{embedded(f"measured-{climb.device_type}", alt, "docs/")}

tok/s over the baseline: {words.gain(ran[10].total)} for rung 10{more}.
"""


# ------------------------------------------------------------------ the second staircase


def staircase(*climbs: Results) -> str:
    """The picture and the table of beyond/README.md: what each rung does to these models."""
    settings = []
    lines = [[Cell("rung")]]
    for path in staircase_rungs():
        lines.append([Cell(f"[{title(path)}](../{relative_name(path)})")])
    for results in climbs:
        ran = by_stem(results.rows)
        run = results.log.run
        rounds = rounds_text(results.rows)
        what = f"{run['steps']} steps of {run['data']}, {machine_of(run)}, {rounds}"
        took = f"10 took {own_steps(ran[START]):,.0f} steps"
        logs = f"[logs](../{relative_name(results.climb.folder)})"
        settings.append(f"{run['model']}: {what} ({logs}); {took}")
        shown = [ran.get(path.stem, Row(path.stem, {})) for path in staircase_rungs()]
        cells = table(shown, staircase_columns(results))
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


def staircase_columns(results: Results) -> list[Column]:
    """What a rung does to the loss, and its share of rung 10's steps; dashes if it did not run."""
    change = all_columns(results)["change"]
    change = change._replace(heading=f"{results.log.run['model']}: {change.heading}")
    found = shares(results.rows)

    def missing(row: Row) -> str:
        return "not reached" if row.stem in found else "–"

    steps = "steps to 10's loss"
    return [change, Column(steps, lambda row: found.get(row.stem), words.share, missing)]


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
                machine_of(top.log.run),
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
