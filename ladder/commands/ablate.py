"""Take single optimisations back from the top rung and measure what each is worth there.

    ladder ablate                 every one of them in turn, three rounds
    ladder ablate 3 5 10          only these

What a rung gains in the climb depends on the order: here each is the last one to be missing. The
scripts are made by reverse-applying a rung's own change to the top script, and run interleaved with
the untouched top. A change that a later rung changed again cannot be taken back: it is named and
left out.
"""

import ast
import re
import tempfile
from pathlib import Path

from ladder.commands.climb import add_run_arguments, new_folder, run_and_report
from ladder.commands.propagate import merge
from ladder.errors import BadInput
from ladder.measure.scripts import RUNGS, all_scripts, parts_of, select


def add_arguments(parser) -> None:
    parser.add_argument("rungs", nargs="*", help=RUNGS)
    add_run_arguments(parser)


def run(args) -> int:
    """The subcommand. Returns the exit status."""
    first, *rungs = all_scripts()
    chosen = select(args.rungs) or rungs
    if wrong := [path.stem for path in chosen if path not in rungs]:
        raise BadInput(f"{wrong[0]} cannot be taken back: only rungs 1 to {len(rungs)} can")
    with tempfile.TemporaryDirectory() as scratch:
        made = []
        for before, rung in zip([first, *rungs], rungs, strict=False):
            if rung in chosen and (source := without(before, rung, rungs[-1])):
                made.append(Path(scratch, f"without_{rung.name}"))
                made[-1].write_text(source, encoding="utf-8")
            elif rung in chosen:
                print(f"{rung.stem} cannot be taken back: a later rung changed it too")
        if not made:
            raise BadInput("none of these changes can be taken back from the top script")
        folder = new_folder(args, "ablate", [rungs[-1], *made])
    return run_and_report(folder)


def without(before: Path, rung: Path, top: Path) -> str | None:
    """The top script without the change from `before` to `rung`; None if a later rung changed it.

    What later rungs do with a variable of this one goes too: 08 unscales by 03's scaler.
    """
    old, new, last = (parts_of(path)[1] for path in (before, rung, top))
    gone = "|".join(assigned(new) - assigned(old)) or "$"
    lines = last.splitlines(keepends=True)
    kept = [x for x in lines if x.rstrip() in new.splitlines() or not re.match(rf" *({gone})\.", x)]
    code = merge(new, "".join(kept), old, all_words=True)
    try:
        compile(code, rung.stem, "exec")
    except SyntaxError:  # also of a conflict's markers
        return None
    return f'"""{top.stem} without {rung.stem}, made by ladder ablate."""\n{code}'


def assigned(code: str) -> set[str]:
    """The variables that a script sets."""
    names = (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}
