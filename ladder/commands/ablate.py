"""Take single optimisations back from the top rung and measure what each is worth there.

    ladder ablate                 every one of them in turn, three rounds
    ladder ablate 3 5 10          only these

What a rung gains in the climb depends on the order: here each is the last one to be missing. The
scripts are made by reverse-applying a rung's own change to the top script, and run interleaved with
the untouched top; they are kept beside their logs. Where a later rung edited the same line, the
change is taken back word by word; where that cannot be done either, it is named and left out.
"""

import re
import tempfile
from pathlib import Path

from ladder.commands.climb import add_run_arguments, new_folder, run_and_report
from ladder.commands.forward import merge_code, trouble
from ladder.commands.scripts import all_scripts, split_docstring
from ladder.errors import BadInput

CONFLICT = re.compile(
    r"<<<<<<< this script\n(?P<ours>.*?)\|{7} base\n(?P<base>.*?)=======\n(?P<theirs>.*?)"
    r">>>>>>> the edit\n",
    flags=re.DOTALL,
)
NEWLINE = "\x1e"  # stands in no script; each word is a line to git


def add_arguments(parser):
    parser.add_argument("rungs", nargs="*", type=int, help="rungs to take back (default: all)")
    add_run_arguments(parser)


def run(args) -> int:
    """The subcommand. Returns the exit status."""
    scripts = all_scripts()
    top = len(scripts) - 1
    rungs = args.rungs or list(range(1, top + 1))
    if wrong := [number for number in rungs if not 1 <= number <= top]:
        raise BadInput(f"there is no rung {wrong[0]} to take back: they go from 1 to {top}")
    with tempfile.TemporaryDirectory() as scratch:
        made = [write_without(number, Path(scratch)) for number in rungs]
        without = [path for path in made if path]
        if not without:
            raise BadInput("none of these changes can be taken back from the top script")
        folder = new_folder(args, "ablate", [scripts[top], *without])
    return run_and_report(folder)


def write_without(number: int, folder: Path) -> Path | None:
    """The top script without the change of one rung, or None, saying why, if that cannot be."""
    scripts = all_scripts()
    before, rung, top = scripts[number - 1], scripts[number], scripts[-1]
    codes = [split_docstring(path)[1] for path in (rung, top, before)]
    code, conflicts = merge_code(*codes)
    if conflicts:
        code, conflicts = merge_words(*codes)
    path = folder / f"without_{rung.stem}.py"
    if conflicts or list(trouble(rung, code, conflicts)):
        print(f"{rung.stem} cannot be taken back: later rungs built on the same words", flush=True)
        return None
    path.write_text(f'"""{top.stem} without {rung.stem}, made by ladder ablate."""\n{code}')
    return path


def merge_words(base: str, ours: str, theirs: str) -> tuple[str, int]:
    """merge_code, but a change of one word of a line does not collide with one of another word."""
    text, _ = merge_code(base, ours, theirs, "--diff3")
    conflicts = []

    def merge_hunk(match: re.Match) -> str:
        sides = (one_word_a_line(match[side]) for side in ("base", "ours", "theirs"))
        merged, collisions = merge_code(*sides)
        conflicts.append(collisions)
        return merged.replace("\n", "").replace(NEWLINE, "\n")

    return CONFLICT.sub(merge_hunk, text), sum(conflicts)


def one_word_a_line(text: str) -> str:
    words = re.findall(r"\w+|[^\w]", text)
    return "\n".join(word.replace("\n", NEWLINE) for word in words) + "\n"
