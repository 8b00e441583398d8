"""The parts of pages that show what others reported, and what is known of cards."""

import io
import json
import re
from contextlib import redirect_stdout
from pathlib import Path

from dev.markdown import embedded, text_table
from dev.reports import CHIPS, gains_of, ladders, near_top, share_of
from ladder.cli import BLOCK_SIZE
from ladder.commands.main import main
from ladder.measure.fits import batch_to_compare, batch_to_train
from ladder.measure.notes import describe, title
from ladder.measure.rates import CARDS, measured_rates
from ladder.measure.scripts import relative_name, rungs
from ladder.show.reported import gains_text, known, rung_gains
from ladder.show.words import gain_text, span

# The one climb in README.md that is not ours.
REPORTED = json.loads(Path(__file__).with_name("reported.json").read_text("utf-8"))
# Names of ladder.measure.rates.CARDS.
FEW_CARDS = ("RTX 3090", "RTX 4070", "RTX 4090", "RTX 5090", "T4", "A100 SXM 80GB", "H100 SXM")
MORE_CARDS = (
    "RTX 3060", "RTX 3070 Laptop", "RTX 3090", "RTX 4050 Laptop", "RTX 4060", "RTX 4060 Laptop",
    "RTX 4070", "RTX 4070 Laptop", "RTX 4090", "RTX 5070 Ti", "RTX 5090", "GB10", "T4",
    "V100 SXM2 16GB", "A10G", "L4",
    "A100 40GB", "A100 SXM 80GB", "H100 SXM", "H200 SXM", "MI300X", "RX 7900 XTX",
)  # fmt: skip


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
    """The ten rungs: what others reported that each gains, and what it removes."""
    lines = []
    for path in rungs():
        name = f"[{title(path)}]({relative_name(path)})"
        removes = describe(path).get("Removes", "").removeprefix("nothing: ")
        line = [name]
        for chip in SHOWN_CHIPS:
            median, ends = gains_text(rung_gains(chip)[path.stem])
            line.append(f"{median}, {ends}" if " to " in ends else f"{median} {ends}")
        lines.append([*line, removes])
    heads = ["rung", *(f"{chip} cards" for chip in SHOWN_CHIPS), "what it removes"]
    alt = "What each rung gained on each card that somebody timed: a dot for each owner"
    return f"""*Reported*: how much faster a step became than with the rung timed before, as the
median of the owners who timed it, their range and number ([each of
them](docs/reported.md#ladders)). Data-center cards: A100, A30. RTX cards: 3050 Ti laptop (at T=256,
which makes the low ends of 05 and 06) to 4090; on one more, a 3090, fused AdamW "even slowed down".

{embedded("gains", alt, "docs/")}

{text_table(heads, lines, left=(0, 3))}"""


SHOWN_CHIPS = ("data-center", "RTX")


# ------------------------------------------------------------------ cards


def cards_table() -> str:
    """The cards of README.md: what they gain, and how fast they train."""
    lines = [known_cells(name, "docs/") for name in FEW_CARDS]
    return text_table(HEADS, lines, left=(0, 4))


def more_cards_table() -> str:
    """The cards of docs/your-card.md."""
    lines = [known_cells(name, "") for name in MORE_CARDS]
    return text_table(HEADS, lines, left=(0, 4))


def memory_table() -> str:
    """How much the cards of docs/your-card.md hold, by their memory."""
    cards = {}
    for name in MORE_CARDS:
        cards.setdefault(CARDS[name].memory, []).append(name)
    lines = []
    for memory in sorted(cards):
        gpu = CARDS[cards[memory][0]]
        compare, train = f"{batch_to_compare(gpu)}", f"{batch_to_train(gpu)}"
        lines.append([f"{memory:g}", ", ".join(cards[memory]), compare, train])
    return text_table(["GB", "cards", "B to compare", "B to train"], lines, left=(1,))


def roofline_example() -> str:
    """What `ladder roofline` prints of a card, with lines left out."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        main(["roofline", "--gpu", "RTX 3090"])
    shown = ""
    for line in printed.getvalue().splitlines():
        if not LEFT_OUT.search(line):
            shown += f"{line.rstrip()}\n"
    return f"```\n{shown}```\n"


LEFT_OUT = re.compile("─|^How|^Matmuls|^ 0[146789]|0[1-7] .* on this card|neemias|dapopov|^ *$")
HEADS = ["card", "rung 10 over the baseline, times", "`train.py`, tok/s", "middle", "reported by"]


def known_cells(name: str, docs: str) -> list[str]:
    """A card and what is known of it, with links to reports. A star: its rates are estimated."""
    card = known()[name]
    found = []
    runs = sum(row["gpu"] == name for row in near_top())
    if runs:
        found.append(f"[{runs} run{'s' if runs > 1 else ''}]({docs}reported.md#nearly-rung-10)")
    climbed = sum(gpu == name for _, gpu in ladders())
    if climbed:
        words = f"{climbed} ladder{'s' if climbed > 1 else ''}"
        found.append(f"[{words}]({docs}reported.md#ladders)")
    shown = name if name in measured_rates() else rf"{name}\*"
    rates = [span(card["gain"]), span(card["tok_per_s"]), f"{card['middle']:,.0f}"]
    return [shown, *rates, ", ".join(found)]


# ------------------------------------------------------------------ docs/reported.md


def reports_table() -> str:
    """The reports near rung 10, the fastest first."""
    lines = []
    for row in near_top():
        who = f"[{row['who']}]({row['source']})"
        share = f"{share_of(row) * 100:.0f} %"
        B = f"{row['B']:.0f}" if row["B"] > 0 else ""
        differs = "; ".join(filter(None, [row["timed"], row["differs"]]))
        if row["who"] == RENTED:
            differs = ""  # all alike: the page says it once
        lines.append([row["gpu"], who, B, f"{row['tok_per_s']:,.0f}", share, differs])
    heads = ["card", "who", "B", "tok/s", "of the roofline", "timed; differs in"]
    return text_table(heads, lines, left=(0, 1, 5))


RENTED = "Any-Winter-4079"  # who timed twenty cards
RUNGS = ("02", "03", "05", "06", "07", "08", "10")  # that ladders timed


def ladders_table() -> str:
    """The ladders in this order, a row each: what each rung gained over the one timed before."""
    return table_of("as here")


def flash_first_table() -> str:
    """The same of the ladders that have flash attention before torch.compile."""
    return table_of("flash first")


def table_of(order: str) -> str:
    """The ladders in an order, and what differs in them."""
    lines = []
    in_order = sorted(ladders().items(), key=lambda item: CHIPS.index(item[1][0]["chip"]))
    for (who, card), ladder in in_order:
        first = ladder[0]
        if first["order"] == order:
            gains = {}
            for stem, gain in gains_of(ladder).items():
                gains[stem[:2]] = short(gain)
            whole = short(ladder[-1]["tok_per_s"] / first["tok_per_s"])
            B = f"B={first['B']:.0f}" if first["B"] > 0 else ""
            T = "" if first["T"] == BLOCK_SIZE else f"T={first['T']:.0f}"
            torch = first["torch"] and f"PyTorch {first['torch']}"
            differs = "; ".join(filter(None, [B, T, torch, first["differs"]]))
            cells = [gains.get(number, "") for number in RUNGS]
            lines.append([f"{card}: [{who}]({first['source']})", *cells, whole, differs])
    heads = ["card: who", *RUNGS, "all", "what differs"]
    return text_table(heads, lines, left=(0, len(heads) - 1))


def short(gain: float) -> str:
    """A gain in a column of many: `2.8×`, `+20 %`."""
    return gain_text(gain).replace(" times", "×")
