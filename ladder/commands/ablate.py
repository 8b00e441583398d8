"""Take single optimisations back from the top rung and measure what each is worth there.

    ladder ablate                 every one of them in turn, three rounds
    ladder ablate 3 5 10          only these

What a rung gains in the climb depends on the order: here each is the last one to be missing. The
scripts are made by reverse-applying a rung's own change to the top script, and run interleaved with
the untouched top. A change that a later rung changed again cannot be taken back: it is named and
left out.
"""

import ast
import tempfile
from itertools import pairwise
from pathlib import Path

from ladder import cli
from ladder.commands.climb import add_run_arguments, prepare_and_run, rungs_to_top
from ladder.commands.diff import RUNGS, select
from ladder.commands.propagate import merge
from ladder.errors import BadInput
from ladder.show.docstrings import parts_of


def add_arguments(parser):
    parser.add_argument("rungs", nargs="*", help=RUNGS)
    add_run_arguments(parser)


def run(args) -> int:
    """The subcommand. Returns the exit status."""
    rungs = rungs_to_top(cli.pick_device(args.device))
    top = rungs[-1]
    chosen = select(args.rungs) or rungs[1:]
    for path in chosen:
        if path not in rungs[1:]:
            raise BadInput(f"{path.stem} cannot be taken back: it is not below {top.stem} here")
    made = []
    with tempfile.TemporaryDirectory() as scratch:
        for before, rung in pairwise(rungs):
            if rung not in chosen:
                continue
            source = without(before, rung, top)
            if source is None:
                print(f"{rung.stem} cannot be taken back: a later rung changed it too")
                continue
            path = Path(scratch, f"without_{rung.name}")
            path.write_text(source, encoding="utf-8")
            made.append(path)
        if not made:
            raise BadInput("none of these changes can be taken back from the top script")
        return prepare_and_run(args, "ablate", [top, *made])


def without(before: Path, rung: Path, top: Path) -> str | None:
    """The top script without the change from `before` to `rung`; None if a later rung changed it.

    What later rungs do with a variable of this one goes too: 08 unscales by 03's scaler.
    """
    old = parts_of(before)[1]
    new = parts_of(rung)[1]
    own_variables = assigned(new) - assigned(old)
    own_lines = new.splitlines()
    kept = ""
    for line in parts_of(top)[1].splitlines(keepends=True):
        uses = line.lstrip().partition(".")[0] in own_variables
        if line.rstrip() in own_lines or not uses:
            kept += line
    code = merge(new, kept, old, always_words=True)
    try:
        compile(code, rung.stem, "exec")
    except SyntaxError:  # also of a conflict's markers
        return None
    return f'"""{top.stem} without {rung.stem}, made by ladder ablate."""\n{code}'


def assigned(code: str) -> set[str]:
    """The variables that a script sets."""
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names
