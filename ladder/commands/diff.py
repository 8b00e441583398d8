"""Show what one rung changes, line by line.

With one rung it prints the rung's docstring and its diff against the rung that it adds one change
to (for 13 and ddp_run.py rung 10, for fsdp_run.py ddp_run.py). With two it compares those two
scripts. The diff itself leaves out docstrings.

  ladder diff 5        the one change of rung 05; `ladder diff compile` does the same
  ladder diff 3 7      everything that rungs 04 to 07 changed together
"""

from pathlib import Path

from rich.text import Text

from ladder.errors import BadInput
from ladder.measure.scripts import A_RUNG, ROOT, before, chain, select
from ladder.show.diffs import diff_lines
from ladder.show.docstrings import FIELDS, OPTIONAL, docstring
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
    scripts = [one_script(word) for word in args.rungs]
    after = scripts[-1]
    if len(scripts) == 2:
        start = scripts[0]
    else:
        start = predecessor(after, args.rungs[0])
        text = Text(printable(docstring(after), keep="\n\t"))
        text.highlight_regex(rf"(?m)\A.*|^({'|'.join(FIELDS + OPTIONAL)}):", "bold")
        console.print(text, "\n", sep="", soft_wrap=True)
    for line in diff_lines(start, after) or ["the code of the two is the same"]:
        # Not wrapped: what is piped on must stay a diff.
        console.print(Text(printable(line, keep="\t"), STYLES.get(line[0], "")), soft_wrap=True)
    return 0


def predecessor(path: Path, word: str) -> Path:
    """The script that `path`, which the user called `word`, adds one change to. Raises BadInput."""
    if path == DDP:
        return chain()[10]
    if path == FSDP:
        return DDP
    start = before(ladder_script(word))
    if start is None:
        raise BadInput("rung 0 changes nothing, it is the start: ladder diff 1, or name two")
    return start


def one_script(word: str) -> Path:
    """The one script that `word` names. Raises BadInput if it is a range or not a script."""
    path, *others = select([word])
    if others:
        raise BadInput(f"{word} is several rungs: name one at a time")
    return path


def ladder_script(word: str) -> Path:
    """The rung or candidate that `word` names. Raises BadInput if it is another script."""
    path = one_script(word)
    if path not in chain():
        raise BadInput(f"{word} is not a rung of this ladder: rungs are numbered from 0")
    return path
