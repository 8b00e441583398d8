"""The scripts of the ladder: where they are and what their docstrings say. No torch needed."""

import ast
import re
from pathlib import Path

from ladder.errors import BadInput
from ladder.files import ROOT

A_RUNG = "its number, its path or a part of its name"  # in --help: what `select` takes
RUNGS = f"{A_RUNG}, or a range, such as 3-6 (default: all but candidates)"
FIELDS = ("Change", "Why", "Numerics", "Run")  # of each docstring, in this order
# After them: what a rung removes from a step, and `Device: CPU` if it does nothing elsewhere.
OPTIONAL = ("Removes", "Device")


def all_scripts() -> list[Path]:
    """baseline.py and every numbered rung, in order."""
    return [ROOT / "baseline.py", *sorted((ROOT / "speedups").glob("[0-9][0-9]_*.py"))]


def candidate_scripts() -> list[Path]:
    """The scripts that no GPU has measured yet, in order."""
    return sorted((ROOT / "candidates").glob("[0-9][0-9]_*.py"))


def chain() -> list[Path]:
    """All rungs, then all candidates. `before` says which script each one goes on from."""
    return all_scripts() + candidate_scripts()


def before(path: Path) -> Path | None:
    """The script that `path` adds one change to; None for baseline.py.

    The ladder forks: a script for CPUs only goes on from the one of these before it, and so do all
    others. The first for CPUs only goes on from the rung before it.
    """
    scripts = chain()
    earlier = scripts[: scripts.index(path)]
    for script in reversed(earlier):
        if cpu_only(script) == cpu_only(path):
            return script
    return earlier[-1] if earlier else None


def number_of(path: Path) -> int:
    """The number of a rung or candidate: 0 for baseline.py."""
    return int(path.stem[:2]) if path.stem[:2].isdecimal() else 0


def peer_scripts() -> list[Path]:
    """The scripts in peers/ that train with other libraries; the first is the fast one."""
    return sorted((ROOT / "peers").glob("*.py"))


def select(words: list[str]) -> list[Path]:
    """Rungs and candidates by number (`3`), range (`0-4`), path or a part of the name.

    A number that a rung and a candidate have means the rung. Raises BadInput for a word that no
    script has, or several.
    """
    # The rungs come last here: they replace candidates of the same number.
    numbered = {number_of(path): path for path in candidate_scripts() + all_scripts()}
    selected = []
    for word in words:
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", word)
        if match:
            first = int(match[1])
            last = int(match[2] or first)
            numbers = [number for number in sorted(numbered) if first <= number <= last]
            if not numbers:
                raise BadInput(f"there is no rung {word}: they end with {chain()[-1].stem}")
            selected += [numbered[number] for number in numbers]
        elif Path(word).is_file():
            selected.append(Path(word).resolve())
        else:
            selected.append(named(word, [*chain(), ROOT / "ddp_run.py", ROOT / "fsdp_run.py"]))
    return selected


def named(word: str, paths: list[Path]) -> Path:
    """The script that is called `word`, or the only one with it in its name. Raises BadInput."""
    part = re.sub(r"[\W_]+", "_", word.lower())
    matches = [path for path in paths if part in path.stem]
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = " or ".join(path.stem for path in matches)
        raise BadInput(f"{word} may be {names}: write more of it")
    raise BadInput(f"{word} is neither a rung (its number or a part of its name) nor a script")


def shown(path: Path) -> str:
    """A script's path as printed: relative to the project if it is inside it."""
    path = path.resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


def split_source(source: str) -> tuple[str, str]:
    """The docstring of a source text (quotes included; empty if none) and the code after it."""
    module = ast.parse(source)
    lines = source.splitlines(keepends=True)
    end = 0
    if ast.get_docstring(module) is not None:
        end = module.body[0].end_lineno
    return "".join(lines[:end]), "".join(lines[end:])


def parts_of(path: Path) -> tuple[str, str]:
    """split_source of a script. Raises BadInput if Python cannot parse it."""
    try:
        return split_source(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        what = f"{shown(path)}:{line} is not valid Python"
        raise BadInput(f"{what} (a merge marker left?): fix that first") from None


def docstring(path: Path) -> str:
    """A script's docstring, empty if it has none. Raises BadInput if Python cannot parse it."""
    return ast.get_docstring(ast.parse(parts_of(path)[0])) or ""


def low_precision(path: Path) -> bool:
    """Whether a script declares this class of numerics, which is in no table with exact ones."""
    return has_field(path, "Numerics: low precision")


def cpu_only(path: Path) -> bool:
    """Whether a script's docstring says that its change does nothing on other devices."""
    return has_field(path, "Device: CPU\n")


def has_field(path: Path, start: str) -> bool:
    """Whether a line of a script starts like this, also where Python cannot parse it."""
    return f"\n{start}" in path.read_text(encoding="utf-8", errors="replace")


def title(path: Path) -> str:
    """The first line of a script's docstring, up to a colon; without one, the file's name."""
    return re.split("[:\n]", docstring(path) or path.stem)[0]


def describe(path: Path) -> dict[str, str]:
    """`Title` and the fields of a script's docstring, each on one line.

    Raises BadInput if one is missing.
    """
    title, _, body = docstring(path).partition("\n")
    names = "|".join((*FIELDS, *OPTIONAL))
    _, *parts = re.split(rf"^({names}):", body, flags=re.MULTILINE)
    fields = {}
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        fields[name] = " ".join(text.split())
    required = [name for name in fields if name not in OPTIONAL]
    if required != list(FIELDS) or not all(fields.values()):
        raise BadInput(f"{path}: its docstring has {list(fields)}, expected {list(FIELDS)}")
    return {"Title": title, **fields}
