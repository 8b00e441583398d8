"""Show what one rung changes, line by line.

With one rung it prints its note (what it changes, why that helps, what it does
to the numbers) and its diff against the rung that it adds one change to: for
31 and ddp_run.py rung 10, for train.py ddp_run.py. With two it prints the
diff of those two scripts.

  ladder diff 5        the one change of rung 05; also `ladder diff compile`
  ladder diff 3 7      everything that rungs 04 to 07 changed together
"""

from argparse import ArgumentParser, Namespace

from rich.text import Text

from ladder.errors import UsageError
from ladder.measure.notes import describe, page_of
from ladder.measure.scripts import A_RUNG, base_of, one_script, relative_name
from ladder.show.console import screen
from ladder.show.diffs import diff_lines
from ladder.text import printable

STYLES = {"@": "cyan", "-": "red", "+": "green"}


def add_arguments(parser: ArgumentParser):
    parser.add_argument("rung", help=A_RUNG)
    parser.add_argument("to", nargs="?", help="another one: the diff from the first to this one")


def main(args: Namespace) -> int:
    """Print the diff. Returns 0, whether there is a difference or not."""
    rung = one_script(args.rung)
    before, after = base_of(rung), rung
    if args.to:
        before, after = rung, one_script(args.to)
    if before is None:
        raise UsageError(f"{after.name} is built on no other: name two, as in ladder diff 3 7")
    console = screen()
    diff = diff_lines(before, after)
    note = {} if args.to else describe(after)
    if note:
        console.say(f"From {relative_name(page_of(after))}, which says of what the numbers are:\n")
    for name, words in note.items():
        console.say(f"{name}: {words}\n")
    for line in diff or ["the two are the same"]:
        # Not wrapped: what is piped on must stay a diff.
        console.print(Text(printable(line, keep="\t"), STYLES.get(line[0], "")), soft_wrap=True)
    return 0
