"""Show what one rung changes, line by line.

With one rung it prints the rung's docstring and its diff against the rung before it (ddp_run.py
against rung 10, fsdp_run.py against ddp_run.py). With two it compares those two scripts. The diff
itself leaves out docstrings.

  ladder diff 5        the one change of rung 05; `ladder diff compile` does the same
  ladder diff 3 7      everything that rungs 04 to 07 changed together
"""

from pathlib import Path

from rich.text import Text

from ladder.errors import BadInput
from ladder.measure.scripts import A_RUNG, FIELDS, ROOT, chain, docstring, select
from ladder.show.diffs import diff_lines
from ladder.show.screen import Screen
from ladder.text import printable

DDP, FSDP = ROOT / "ddp_run.py", ROOT / "fsdp_run.py"
STYLES = {"@": "cyan", "-": "red", "+": "green"}


def add_arguments(parser) -> None:
    parser.add_argument("rungs", nargs="+", metavar="RUNG", help=f"one or two: {A_RUNG}")


def run(args) -> int:
    """Print the diff. Returns 0, whether there is a difference or not."""
    if len(args.rungs) > 2:
        raise BadInput(f"expected one or two rungs, got {len(args.rungs)}: try ladder diff 3 7")
    console = Screen(highlight=False)
    if len(args.rungs) == 2:
        before, after = map(one_script, args.rungs)
    else:
        after = one_script(args.rungs[0])
        before = {DDP: chain()[10], FSDP: DDP}.get(after)
        if before is None and (number := rung_number(args.rungs[0])) == 0:
            raise BadInput("rung 0 changes nothing, it is the start: ladder diff 1, or name two")
        before = before or chain()[number - 1]
        text = Text(printable(docstring(after), keep="\n\t"))
        text.highlight_regex(rf"(?m)\A.*|^({'|'.join(FIELDS)}):", "bold")
        console.print(text, "\n", sep="", soft_wrap=True)
    for line in diff_lines(before, after) or ["the code of the two is the same"]:
        # Not wrapped: what is piped on must stay a diff.
        console.print(Text(printable(line, keep="\t"), STYLES.get(line[0], "")), soft_wrap=True)
    return 0


def one_script(word: str) -> Path:
    """The one script that `word` names. Raises BadInput if it is a range or not a script."""
    path, *others = select([word])
    if others:
        raise BadInput(f"{word} is several rungs: name one at a time")
    return path


def rung_number(word: str) -> int:
    """Where in chain() the script is that `word` names. Raises BadInput if it is not in it."""
    path, known = one_script(word), chain()
    if path not in known:
        raise BadInput(f"{word} is not a rung of this ladder: rungs are numbered from 0")
    return known.index(path)
