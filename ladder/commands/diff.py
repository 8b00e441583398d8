"""Show what one rung changes, line by line.

With one rung it prints its diff against the rung that it adds one change to
(for 13 and ddp_run.py rung 10, for fsdp_run.py ddp_run.py), and what its
docstring says of that. With two it compares those two scripts; of neighbours
it says that, too. The diff itself leaves out docstrings.

  ladder diff 5        the one change of rung 05; also `ladder diff compile`
  ladder diff 3 7      everything that rungs 04 to 07 changed together
"""

import re
from pathlib import Path

from rich.text import Text

from ladder.errors import UsageError
from ladder.measure.docstrings import FIELDS, OPTIONAL, docstring
from ladder.measure.scripts import A_RUNG, all_scripts, base_of, one_script
from ladder.show.console import screen
from ladder.show.diffs import diff_lines
from ladder.text import printable

STYLES = {"@": "cyan", "-": "red", "+": "green"}


def add_arguments(parser):
    parser.add_argument("rungs", nargs="+", metavar="RUNG", help=f"one or two: {A_RUNG}")


def run(args) -> int:
    """Print the diff. Returns 0, whether there is a difference or not."""
    if len(args.rungs) > 2:
        raise UsageError(f"expected one or two rungs, got {len(args.rungs)}: try ladder diff 3 7")
    console = screen()
    scripts = [one_script(word) for word in args.rungs]
    after = scripts[-1]
    start = scripts[0] if len(scripts) == 2 else base_for(after, args.rungs[0])
    for line in diff_lines(start, after) or ["the code of the two is the same"]:
        # Not wrapped: what is piped on must stay a diff.
        console.print(Text(printable(line, keep="\t"), STYLES.get(line[0], "")), soft_wrap=True)
    if start == base_of(after):
        console.print()
        text, _, _ = docstring(after).partition("\nEffective:")  # that is for tools
        console.print(paragraphs(text))
    return 0


def paragraphs(text: str) -> Text:
    """A docstring in lines that the terminal may wrap: one for its title and one for each field."""
    field = f"({'|'.join(FIELDS + OPTIONAL)}):"
    return Text(re.sub(rf"(?<!\n)\n(?!\n|{field}) *", " ", printable(text, keep="\n")))


def base_for(path: Path, word: str) -> Path:
    """The script that `path`, which the user called `word`, adds one change to.

    Raises UsageError.
    """
    start = base_of(path)
    if start is None and path in all_scripts():
        raise UsageError("rung 0 changes nothing, it is the start: ladder diff 1, or name two")
    if start is None:
        raise UsageError(f"{word} is not a rung of this ladder: rungs are numbered from 0")
    return start
