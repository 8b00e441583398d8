"""The scripts of the ladder: where they are and what their docstrings say. No torch needed."""

import ast
import re
from pathlib import Path

from ladder.errors import BadInput
from ladder.files import ROOT

A_RUNG = "its number, its path or a part of its name"  # in --help: what `select` takes
RUNGS = f"{A_RUNG}, or a range, such as 3-6 (default: all but candidates)"
FIELDS = ("Change", "Why", "Numerics", "Run")


def all_scripts() -> list[Path]:
    """baseline.py and every numbered rung, in order."""
    return [ROOT / "baseline.py", *sorted((ROOT / "speedups").glob("[0-9][0-9]_*.py"))]


def candidate_scripts() -> list[Path]:
    """The scripts that no GPU has measured yet, in order: the first goes on from the last rung."""
    return sorted((ROOT / "candidates").glob("[0-9][0-9]_*.py"))


def chain() -> list[Path]:
    """All rungs, then all candidates: each is the one before it plus one change."""
    return all_scripts() + candidate_scripts()


def number_of(path: Path) -> int:
    """The number of a rung or candidate: 0 for baseline.py."""
    return int(path.stem[:2]) if path.stem[:2].isdecimal() else 0


def peer_scripts() -> list[Path]:
    """The scripts in peers/ that train with other libraries; the first is the fast one."""
    return sorted((ROOT / "peers").glob("*.py"))


def select(words: list[str]) -> list[Path]:
    """Rungs and candidates by number (`3`), range (`0-4`), path or a part of the name.

    A number that a new rung has too means the rung. Raises BadInput for a word that no script has,
    or several.
    """
    found, numbered = [], {number_of(path): path for path in reversed(chain())}
    for word in words:
        if match := re.fullmatch(r"(\d+)(?:-(\d+))?", word):
            first, last = int(match[1]), int(match[2] or match[1])
            some = [numbered[number] for number in sorted(numbered) if first <= number <= last]
            if not some:
                raise BadInput(f"there is no rung {word}: they end with {chain()[-1].stem}")
            found += some
        elif Path(word).is_file():
            found.append(Path(word).resolve())
        else:
            found.append(named(word, [*chain(), ROOT / "ddp_run.py", ROOT / "fsdp_run.py"]))
    return found


def named(word: str, paths: list[Path]) -> Path:
    """The script that is called `word`, or the only one with it in its name. Raises BadInput."""
    part = re.sub(r"[\W_]+", "_", word.lower())
    has = [path for path in paths if part in path.stem]
    if len(has) == 1:
        return has[0]
    if has:
        raise BadInput(f"{word} may be {' or '.join(path.stem for path in has)}: write more of it")
    raise BadInput(f"{word} is neither a rung (its number or a part of its name) nor a script")


def shown(path: Path) -> str:
    """A script's path as printed: relative to the project if it is inside it."""
    path = path.resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


def split_source(source: str) -> tuple[str, str]:
    """The docstring of a source text (quotes included; empty if none) and the code after it."""
    module, lines = ast.parse(source), source.splitlines(keepends=True)
    end = module.body[0].end_lineno if ast.get_docstring(module) is not None else 0
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
    return "\nNumerics: low precision" in path.read_text(encoding="utf-8", errors="replace")


def cpu_only(path: Path) -> bool:
    """Whether a rung says of its change, or why it is faster, that it is so on a CPU."""
    return bool(re.search("^(Change|Why): on a CPU", docstring(path), flags=re.MULTILINE))


def title(path: Path) -> str:
    """The first line of a script's docstring, up to a colon; the file's name without."""
    return re.split("[:\n]", docstring(path) or path.stem)[0]


def describe(path: Path) -> dict[str, str]:
    """`Title` and the fixed fields of a script's docstring, each on one line.

    Raises BadInput if one is missing.
    """
    title, _, body = docstring(path).partition("\n")
    parts = re.split(rf"^({'|'.join(FIELDS)}):", body, flags=re.MULTILINE)
    texts = (" ".join(text.split()) for text in parts[2::2])
    found = dict(zip(parts[1::2], texts, strict=True))
    if tuple(found) != FIELDS or not all(found.values()):
        raise BadInput(f"{path}: its docstring has {list(found)}, expected {list(FIELDS)}")
    return {"Title": title, **found}
