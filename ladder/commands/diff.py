"""Show what one rung changes, line by line.

With one rung it prints the rung's docstring and its diff against the rung that it adds one change
to (for 13 and ddp_run.py rung 10, for fsdp_run.py ddp_run.py). With two it compares those two
scripts. The diff itself leaves out docstrings.

  ladder diff 5        the one change of rung 05; `ladder diff compile` does the same
  ladder diff 3 7      everything that rungs 04 to 07 changed together
"""

import re
from pathlib import Path

from rich.text import Text

from ladder.errors import UsageError
from ladder.measure.docstrings import FIELDS, OPTIONAL, docstring
from ladder.measure.scripts import DDP, FSDP, all_scripts, base_of, number_of, peer_scripts
from ladder.show.console import Screen
from ladder.show.diffs import diff_lines
from ladder.text import printable

STYLES = {"@": "cyan", "-": "red", "+": "green"}
A_RUNG = "its number, its path or a part of its name"  # in --help: what `select` takes
RUNGS = f"{A_RUNG}, or a range, such as 3-6; transformers (default: all rungs but candidates)"


def add_arguments(parser):
    parser.add_argument("rungs", nargs="+", metavar="RUNG", help=f"one or two: {A_RUNG}")


def run(args) -> int:
    """Print the diff. Returns 0, whether there is a difference or not."""
    if len(args.rungs) > 2:
        raise UsageError(f"expected one or two rungs, got {len(args.rungs)}: try ladder diff 3 7")
    console = Screen(highlight=False)
    scripts = [one_script(word) for word in args.rungs]
    after = scripts[-1]
    if len(scripts) == 2:
        start = scripts[0]
    else:
        start = base_for(after, args.rungs[0])
        text = Text(printable(docstring(after), keep="\n\t"))
        text.highlight_regex(rf"(?m)\A.*|^({'|'.join(FIELDS + OPTIONAL)}):", "bold")
        console.print(text, "\n", sep="", soft_wrap=True)
    for line in diff_lines(start, after) or ["the code of the two is the same"]:
        # Not wrapped: what is piped on must stay a diff.
        console.print(Text(printable(line, keep="\t"), STYLES.get(line[0], "")), soft_wrap=True)
    return 0


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


def select(words: list[str]) -> list[Path]:
    """Rungs and candidates by number (`3`), range (`0-4`), path or a part of the name; peers too.

    Raises UsageError for a word that no script has, or several.
    """
    selected = []
    for word in words:
        numbers = re.fullmatch(r"(\d+)(?:-(\d+))?", word)
        if numbers:
            first = int(numbers[1])
            last = int(numbers[2] or first)
            selected += numbered(first, last)
        elif Path(word).is_file():
            selected.append(Path(word).resolve())
        elif word == "transformers":
            selected += peer_scripts()
        else:
            selected.append(named(word, [*all_scripts(), DDP, FSDP, *peer_scripts()]))
    return selected


def numbered(first: int, last: int) -> list[Path]:
    """The scripts with these numbers. Raises UsageError if there is none, or several have one."""
    found = {}
    for path in all_scripts():
        number = number_of(path)
        if first <= number <= last:
            if number in found:  # one of cpu/ and one of candidates/
                raise UsageError(f"{number} is {found[number].stem} or {path.stem}: write its name")
            found[number] = path
    if not found:
        top = number_of(all_scripts()[-1])
        which = first if first == last else f"from {first} to {last}"
        raise UsageError(f"no rung has a number {which}: they end with {top}")
    return [found[number] for number in sorted(found)]


def named(word: str, paths: list[Path]) -> Path:
    """The script that is called `word`, or the only one with it in its name. Raises UsageError."""
    part = re.sub(r"[\W_]+", "_", word.lower())
    matches = [path for path in paths if part in path.stem]
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = " or ".join(path.stem for path in matches)
        raise UsageError(f"{word} may be {names}: write more of it")
    raise UsageError(f"{word} is neither a rung (its number or a part of its name) nor a script")


def one_script(word: str) -> Path:
    """The one script that `word` names. Raises UsageError if it is a range or not a script."""
    path, *others = select([word])
    if others:
        raise UsageError(f"{word} is several rungs: name one at a time")
    return path


def ladder_script(word: str) -> Path:
    """The rung or candidate that `word` names. Raises UsageError if it is another script."""
    path = one_script(word)
    if path not in all_scripts():
        raise UsageError(f"{word} is not a rung of this ladder: rungs are numbered from 0")
    return path
