"""The parts of pages that are made: between markers, from logs, reports and counts."""

import re

from dev.cards import (
    cards_table,
    flash_first_table,
    ladder_picture,
    ladders_table,
    memory_table,
    more_cards_table,
    reports_table,
    roofline_example,
    rungs_table,
)
from dev.climbs import full_table, losses_table, machines_table, measured, read_climbs, staircase
from dev.reports import ranges_text


def render(text: str) -> str:
    """`text` with every block between markers made again from the logs that its marker names."""
    return BLOCK.sub(block, text)


def block(match: re.Match) -> str:
    """One block with its markers, made from its logs."""
    marker = match[0].partition("\n")[0]
    made = MAKERS[match["name"]](*read_climbs(match["folders"]))
    return f"{marker}\n{made}<!-- end -->"


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
    "memory": memory_table,
    "roofline": roofline_example,
    "reports": reports_table,
    "ladders": ladders_table,
    "flash-first": flash_first_table,
    "ranges": ranges_text,
    "machines": machines_table,
    "table": full_table,
    "losses": losses_table,
}
BLOCK = re.compile(
    rf"<!-- (?P<name>{'|'.join(MAKERS)})(?P<folders>( \S+)*) -->\n.*?<!-- end -->", re.DOTALL
)
