"""Pack a finished climb into one small file that you can send.

    ladder share runs/climb-20261121-101500

The file is compressed JSON: the text of climb.json and of each log, with device, versions, clocks
and times (read it with zcat). It has no path, no name of a person or a computer and no text of
yours: notes, error messages and scripts are left out, and a climb of your own scripts or on your
own text is refused. `ladder publish FILE` takes it in.
"""

import gzip
import json
import re
import shlex
import zlib
from pathlib import Path

from ladder.commands.publish import fit, slug
from ladder.commands.results import FACTS, NAME, read_facts
from ladder.errors import BadInput
from ladder.files import regular, write_whole

PACKED, UNPACKED, FILES = 1_000_000, 10_000_000, 1_000  # at most: bytes, bytes, files
MEMBER = re.compile(r"climb\.json|[a-z0-9_]{1,60}\.r[1-9][0-9]{0,2}\.log")
SCRIPT = r"(baseline|(speedups/|candidates/|without_)\d\d_\w+|peers/\w+)\.py"
NUMBERS = r'([-+.\deE\[\]{}, ]|true|false|null|"\w{1,40}": )*'  # as JSON, some by name
WORDS = "(script|commit|torch|python|model|data_sha256)="  # these values need not be numbers
# The lines of a log that are kept, by their first word. No word matches in two ways: of n such
# words re would try 2ⁿ combinations.
LINES = {
    "run": rf"run  ( ({WORDS}[\w/.+-]{{1,80}}|(?!{WORDS}|device=)\w{{1,30}}=-?[\d.]{{1,30}}"
    rf'|device="?{NAME}"?|data=tinyshakespeare))+',
    "step": r"step +\d+/\d+ \| loss \d+\.\d+ \| dt +\d+\.\d+ ms \| tok/s +\d+"
    r"( \| \w{1,20} +(\d\.\d+e[+-]\d\d|inf|nan))*",  # a skipped step's norm
    "effective": r"effective( \w{1,20}=[\w()+.:-]{1,60})+|effective unknown",
    "mfu": r"mfu  ( \w{1,20}=[\w+.]{1,40})+",
    "RESULT": r'RESULT \{("\w{1,20}": ("[\w/. ]{0,80}"|null|true|false|[-+.\de]{1,30})(, )?)+\}',
}


def add_arguments(parser):
    parser.add_argument("folder", type=Path, help="a climb's folder, such as runs/climb-…")
    parser.add_argument("--out", type=Path, help="the file (default: beside the folder)")


def run(args) -> int:
    """The subcommand. Returns the exit status."""
    packed = pack(args.folder)
    out = args.out or args.folder.resolve().parent / f"{slug(read_facts(args.folder))}.json.gz"
    if regular(out).exists() and out.read_bytes() != packed:
        raise BadInput(f"{out} is there already: choose another --out")
    write_whole(out, packed)
    again = f'ladder publish {shlex.quote(str(out))} "One sentence: what it shows."'
    print(
        f"written: {out}, {len(packed) / 1e3:.0f} kB of logs, without paths, names and messages\n"
        f"Attach it to an issue of the project, or open a pull request with what\n    {again}\n"
        "changes: logs/ gets the logs, RUNLOG.md an entry, README.md a row for your machine."
    )
    return 0


def pack(folder: Path) -> bytes:
    """The shared form of a climb. Raises BadInput where it cannot be shared."""
    fit(folder)
    files = clean(folder)
    text = json.dumps(files, indent=0).encode()
    packed = gzip.compress(text, mtime=0)
    if len(packed) > PACKED or len(text) > UNPACKED or len(files) > FILES:
        raise BadInput(f"{folder} is too large to share: climb with fewer rounds or steps")
    return packed


def unpack(path: Path, into: Path) -> None:
    """Write the files of a shared climb into an empty folder.

    Raises BadInput unless they are exactly what `pack` makes of them again.
    """
    try:
        with gzip.open(path) as file:
            text = file.read(UNPACKED + 1)
        files = json.loads(text) if len(text) <= UNPACKED else None
        if not isinstance(files, dict) or "climb.json" not in files or len(files) > FILES:
            raise ValueError("it is too large, or holds no climb")
        for name, content in files.items():
            if not MEMBER.fullmatch(name) or not isinstance(content, str):
                raise ValueError(f"it holds {name!r:.80}")
            (into / name).write_bytes(content.encode())
        if clean(into) != files:
            raise ValueError("it holds what ladder share leaves out")
    except (OSError, EOFError, zlib.error, ValueError, RecursionError, BadInput) as error:
        raise BadInput(f"{path} is not a file of ladder share, or damaged: {error}") from None


def clean(folder: Path) -> dict[str, str]:
    """The text of climb.json and of each log by the file's name, without what is not shared: names,
    notes, messages, and of climb.json unknown keys that hold text.

    Raises BadInput if a script may name somebody, or a log has lines that this ladder does not
    write.
    """
    facts = read_facts(folder)
    if own := [name for name in facts["scripts"] if not re.fullmatch(SCRIPT, name, flags=re.ASCII)]:
        raise BadInput(f"{own[0]!r:.80} is a script of your own: climb without it to share")
    kept = {
        key: value
        for key, value in facts.items()
        if key in FACTS or re.fullmatch(NUMBERS, json.dumps({key: value}), flags=re.ASCII)
    }
    known = r"out of memory|killed by SIG[A-Z]+"  # of a failure only its kind is kept
    kept["failures"] = {
        name: (re.match(known, why) or ["it failed"])[0]
        for name, why in facts["failures"].items()
        if MEMBER.fullmatch(f"{name}.log")
    }
    files = {"climb.json": json.dumps(kept, indent=1) + "\n"}
    scripts = {Path(name).stem: name for name in facts["scripts"]}
    for path in sorted(folder.glob("*.log")):
        files[path.name] = clean_log(path, scripts.get(path.name.partition(".")[0], ""))
    return files


def clean_log(path: Path, script: str) -> str:
    """The log of a script of this name, without notes and messages."""
    kept = []
    for line in path.read_bytes().decode().split("\n"):
        kind = line.partition(" ")[0]
        # An ablation's script was made in the folder of the climb.
        line = re.sub(r'( script=)("[^"]*"|\S+)', lambda m: m[1] + script, line, count=1)
        line = re.sub(r'("script": )"[^"]*"', lambda m: f'{m[1]}"{script}"', line, count=1)
        if kind in LINES:
            if not re.fullmatch(LINES[kind], line, flags=re.ASCII):
                raise BadInput(f"{path}: its {kind} line is not of this ladder")
            kept.append(line + "\n")
    return "".join(kept)
