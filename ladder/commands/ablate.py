"""Take single optimisations back from the top rung and measure what each is worth there.

    ladder ablate                 every one of them in turn, three rounds
    ladder ablate 3 5 10          only these

What a rung gains in the climb depends on the order: here each is the last one to be missing. The
scripts are made by reverse-applying a rung's own change to the top script, and run interleaved with
the untouched top. Where a later rung edited the same line, the change is taken back word by word;
where that cannot be done either, it is named and left out.
"""

import ast
import re
import tempfile
from pathlib import Path

from ladder.commands.forward import merge_code
from ladder.commands.scripts import RUNGS, all_scripts, number_of, select, split_source
from ladder.errors import BadInput
from ladder.files import git

CONFLICT = re.compile(
    r"<<<<<<< this script\n(?P<ours>.*?)\|{7} base\n(?P<base>.*?)=======\n(?P<theirs>.*?)"
    r">>>>>>> the edit\n",
    flags=re.DOTALL,
)
NEWLINE = "\x1e"  # stands in no script; each word is a line to git


def add_arguments(parser):
    from ladder.commands.climb import add_run_arguments

    parser.add_argument("rungs", nargs="*", help=RUNGS)
    add_run_arguments(parser)


def run(args) -> int:
    """The subcommand. Returns the exit status."""
    from ladder.commands.climb import new_folder, run_and_report  # torch: `report` needs none

    scripts = all_scripts()
    top = len(scripts) - 1
    chosen = select(args.rungs) if args.rungs else scripts[1:]
    if wrong := [path for path in chosen if path not in scripts[1:]]:
        raise BadInput(f"{wrong[0].stem} cannot be taken back: only rungs 1 to {top} can")
    rungs = [number_of(path) for path in chosen]
    texts = [(path.stem, path.read_text(encoding="utf-8")) for path in scripts]
    with tempfile.TemporaryDirectory() as scratch:
        made = []
        for number in rungs:
            path = Path(scratch, f"without_{scripts[number].stem}.py")
            if source := without(texts[number - 1], texts[number], texts[-1]):
                path.write_text(source, encoding="utf-8")
                made.append(path)
            else:
                print(f"{scripts[number].stem} cannot be taken back: a later rung changed it too")
        if not made:
            raise BadInput("none of these changes can be taken back from the top script")
        folder = new_folder(args, "ablate", [scripts[top], *made])
    return run_and_report(folder)


def without(before, rung, top) -> str | None:
    """The top script without the change of a rung; None if that cannot be taken back.

    `before` is the script that the rung follows. Each is a stem and a source text.
    """
    codes = [split_source(text)[1] for _, text in (rung, top, before)]
    codes[1] = without_orphans(*codes)
    code, conflicts = merge_code(*codes)
    if conflicts:
        code, conflicts = merge_words(*codes)
    try:
        compile(code, rung[0], "exec")
    except SyntaxError:
        return None
    return (
        None if conflicts else f'"""{top[0]} without {rung[0]}, made by ladder ablate."""\n{code}'
    )


def without_orphans(rung: str, top: str, before: str) -> str:
    """`top` without what later rungs do with a variable of this one: 08 unscales by 03's scaler."""
    gone = "|".join(assigned(rung) - assigned(before)) or "$"
    own = rung.splitlines()
    lines = top.splitlines(keepends=True)
    return "".join(x for x in lines if x.rstrip() in own or not re.match(rf" *({gone})\.", x))


def assigned(code: str) -> set[str]:
    """The variables that a script sets."""
    names = (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


def source_at(commit: str, stem: str) -> str | None:
    """The script `without_NN_name` as an ablation at that commit made it.

    None where git does not have the commit or the rung, or the change cannot be taken back.
    """
    try:
        names = git("ls-tree", "--name-only", commit, "baseline.py", "speedups/").stdout.split()
        stems = [Path(name).stem for name in names]
        if (rung := stem.removeprefix("without_")) not in stems[1:]:
            return None
        at = stems.index(rung)
        shown = [git("show", f"{commit}:./{names[i]}").stdout for i in (at - 1, at, -1)]
        return without(*zip((stems[at - 1], rung, stems[-1]), shown, strict=True))
    except (BadInput, SyntaxError):  # no git; a script that Python cannot read
        return None


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
