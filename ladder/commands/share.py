"""Pack a finished climb into one small file that you can send.

    ladder share runs/climb-20261121-101500

The file has the logs and climb.json: device, versions, clocks and times. It has no path, no name of
a person or a computer and no text of yours: notes, error messages and scripts are left out, and a
climb of your own scripts or on your own text is refused. `ladder publish FILE` takes it in.
"""

import gzip
import io
import json
import re
import shlex
import tarfile
import tempfile
import zlib
from pathlib import Path

from ladder.commands.kinds import KINDS
from ladder.commands.results import LOG_NAME
from ladder.errors import BadInput
from ladder.files import write_whole
from ladder.log import pairs_line

PACKED, UNPACKED, FILES = 1_000_000, 10_000_000, 1_000  # at most: bytes, bytes, files
MEMBER = re.compile(r"climb\.json|[a-z0-9_]{1,60}\.r[1-9][0-9]{0,2}\.log")
VERSION, NAME, TEXT = r"[\w.+-]{1,40}", r"[\w .,()@/+-]{1,80}", r'"([^"\\]|\\.)*"'
# climb.json, each value as JSON. These forms hold for every climb that is published ...
FACTS = {
    "kind": f'"({"|".join(KINDS)})"',
    "started": r'"\d{4}-\d\d-\d\d \d\d:\d\d"',
    "commit": r'"([0-9a-f]{12}(-dirty)?|unknown)"',
    "repeats": r"\d{1,4}",
    "flags": r'\[("--[a-z-]+=[\w.:-]{1,40}"(, )?)*\]',
    "versions": rf'\{{("\w+": "{VERSION}"(, )?)*\}}',
    "system": f'"{NAME}"',
    "cores": r"\d{1,5}|null",
    "clocks": r'\{("(before|after)": "([\w .,\[\]/-]|\\n)*"(, )?)+\}',
    "failures": rf"\{{({TEXT}: {TEXT}(, )?)*\}}",
    "scripts": rf"\[({TEXT}(, )?)+\]",
    "device": f'"{NAME}"',
}
# ... and these for one that is shared. Other keys may have numbers.
SHARED = FACTS | {
    "commit": r'"[0-9a-f]{12}"',
    "data": "null",
    "failures": r'\{("\w+\.r\d+": "(it failed|out of memory|killed by SIG[A-Z]+)"(, )?)*\}',
    "scripts": r'\[("(baseline|(speedups/|candidates/|without_)\d\d_\w+|peers/\w+)\.py"(, )?)+\]',
    "peak_dtype": r'"\w{1,20}"',
}
NUMBERS = r'([-+.\deE\[\]{}, ]|true|false|null|"\w{1,40}": )*'
# The run line of a log, by key, and its other lines; what is of no such kind is left out.
RUN = {
    "script": r"[\w/.]{1,80}",
    "commit": r"[0-9a-f]{12}",
    "torch": VERSION,
    "python": VERSION,
    "device": NAME,
    "model": r"[\w-]{1,20}",
    "data": r"tinyshakespeare",
    "data_sha256": r"[0-9a-f]{12}",
}
LINES = {
    "step": r"step +\d+/\d+ \| loss \d+\.\d+ \| dt +\d+\.\d+ ms \| tok/s +\d+"
    r"( \| \w{1,20} +\d\.\d+e[+-]\d\d)*",
    "effective": r"effective( \w{1,20}=[\w()+.:-]{1,60})+|effective unknown",
    "mfu": r"mfu  ( \w{1,20}=[\w+.]{1,40})+",
    "RESULT": r'RESULT \{("\w{1,20}": ("[\w/. ]{0,80}"|null|true|false|[-+.\de]{1,30})(, )?)+\}',
}


def add_arguments(parser):
    parser.add_argument("folder", type=Path, help="a climb's folder, such as runs/climb-…")
    parser.add_argument("--out", type=Path, help="the file (default: beside the folder)")


def run(args) -> int:
    """The subcommand. Returns the exit status."""
    from ladder.commands.publish import fit, slug  # which takes in what is packed here

    facts, _ = fit(args.folder)
    out = args.out or args.folder.parent / f"{slug(facts)}.tar.gz"
    packed = pack(args.folder, facts)
    with tempfile.TemporaryDirectory() as scratch:
        unpack(packed, Path(scratch), args.folder)
        fit(Path(scratch), args.folder)
    if out.exists() and out.read_bytes() != packed:
        raise BadInput(f"{out} is there already: choose another --out")
    try:
        write_whole(out, packed)
    except OSError as error:
        raise BadInput(f"cannot write {out}: {error.strerror}") from error
    again = f'ladder publish {shlex.quote(str(out))} "One sentence: what it shows."'
    print(
        f"written: {out}, {len(packed) / 1e3:.0f} kB of logs, without paths, names and messages\n"
        f"Attach it to an issue of the project, or open a pull request with what\n    {again}\n"
        "changes: logs/ gets the logs, RUNLOG.md an entry, README.md a row for your machine."
    )
    return 0


def pack(folder: Path, facts: dict) -> bytes:
    """A .tar.gz of a climb's cleaned logs and climb.json. Raises BadInput where they cannot be."""
    own = [name for name in facts["scripts"] if not re.fullmatch(SHARED["scripts"], f'["{name}"]')]
    if own:
        raise BadInput(f"{own[0]} is a script of your own: climb without it to share")
    facts = clean_facts(facts)
    scripts = {Path(name).stem: name for name in facts["scripts"]}
    files = {"climb.json": json.dumps(facts, indent=1) + "\n"}
    for path in sorted(folder.glob("*.r*.log")):
        stem = LOG_NAME.fullmatch(path.name)["stem"]
        if stem not in scripts:
            raise BadInput(f"{path} is of no script in climb.json: move it out of the folder")
        files[path.name] = clean_log(path.read_text(encoding="utf-8"), scripts[stem], path)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)  # of nobody, in 1970
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    packed = gzip.compress(archive.getvalue(), mtime=0)
    if len(packed) > PACKED or len(archive.getvalue()) > UNPACKED or len(files) > FILES:
        raise BadInput(f"{folder} is too large to share: climb with fewer rounds or steps")
    return packed


def clean_facts(facts: dict) -> dict:
    """climb.json without unknown keys that hold text. Of a failure only its kind is kept."""
    kept = {}
    for key, value in facts.items():
        if key in SHARED or (
            re.fullmatch(r"[a-z_]{1,30}", key)
            and re.fullmatch(NUMBERS, json.dumps(value), flags=re.ASCII)
        ):
            kept[key] = value
    known = r"out of memory|killed by SIG[A-Z]+"
    reasons = {name: re.match(known, why) for name, why in facts["failures"].items()}
    kept["failures"] = {name: why[0] if why else "it failed" for name, why in reasons.items()}
    return kept


def clean_log(text: str, script: str, name: str | Path) -> str:
    """The log of a script of this name, without notes and messages.

    Raises BadInput if a line is not as the scripts of this ladder write it.
    """
    kept = []
    for line in text.split("\n"):
        kind = line.partition(" ")[0]
        if kind == "run":
            line = clean_run(line, script)
        elif kind == "RESULT":
            line = re.sub(r'"script": "[^"]*"', lambda _: f'"script": "{script}"', line)
        if kind == "run" or kind in LINES:
            if not line or (kind != "run" and not re.fullmatch(LINES[kind], line, flags=re.ASCII)):
                raise BadInput(f"{name}: its {kind} line is not of this ladder")
            kept.append(line + "\n")
    return "".join(kept)


def clean_run(line: str, script: str) -> str:
    """The run line without unknown keys that hold text; empty if a known key has a wrong value."""
    try:
        pairs = dict(word.split("=", 1) for word in shlex.split(line)[1:])
    except ValueError:  # no closing quotation mark; no =
        return ""
    pairs["script"] = script
    good = {
        key: re.fullmatch(RUN.get(key, r"[\d.]{1,30}"), value, flags=re.ASCII)
        for key, value in pairs.items()
    }
    if not all(good.get(key) for key in RUN):
        return ""
    return pairs_line("run", {key: pairs[key] for key in pairs if good[key]})


def refuse(word: str):
    """For json.loads, which would take NaN and Infinity."""
    raise ValueError(f"{word} is not a number")


def find_wrong(facts: dict, forms: dict[str, str]) -> str | None:
    """The first key of climb.json whose value does not have the form that it should have."""
    if not isinstance(facts, dict):
        return "its outermost value"
    for key, form in forms.items():
        if not re.fullmatch(form, json.dumps(facts.get(key)), flags=re.ASCII):
            return key
    return None


def unpack(packed: bytes, into: Path, name: Path) -> None:
    """Write the files of a shared climb into a folder, all or none. Raises BadInput unless they are
    exactly what `pack` writes: no path, no link, no other file, nothing large."""
    files, too_large = {}, BadInput(f"{name} is too large for a shared climb")
    if len(packed) > PACKED:
        raise too_large
    try:
        raw = gzip.GzipFile(fileobj=io.BytesIO(packed)).read(UNPACKED + 1)
        if len(raw) > UNPACKED:
            raise too_large
        with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as tar:
            for member in tar:
                if not MEMBER.fullmatch(member.name):
                    raise BadInput(f"{name} holds {member.name[:60]!r}, which is not a log")
                if member.type != tarfile.REGTYPE or member.issparse():
                    raise BadInput(f"{name}: {member.name} is a link or a device, not a file")
                if member.name in files:
                    raise BadInput(f"{name} holds {member.name} twice")
                if len(files) == FILES:
                    raise BadInput(f"{name} holds more than {FILES} files")
                files[member.name] = tar.extractfile(member).read().decode()
        facts = json.loads(files.pop("climb.json"), parse_constant=refuse)
    except KeyError:
        raise BadInput(f"{name} holds no climb.json") from None
    except (
        *(OSError, EOFError, zlib.error, tarfile.TarError),
        *(ValueError, OverflowError, RecursionError),
    ) as error:
        raise BadInput(f"{name} is not a file of ladder share, or damaged: {error}") from None
    if wrong := find_wrong(facts, SHARED):
        raise BadInput(f"{name}: climb.json: {wrong} is not as ladder share writes it")
    scripts = {Path(script).stem: script for script in facts["scripts"]}
    if clean_facts(facts) != facts:
        raise BadInput(f"{name}: climb.json holds what ladder share leaves out")
    for log, text in files.items():
        script = scripts.get(LOG_NAME.fullmatch(log)["stem"])
        if not script or clean_log(text, script, f"{name}: {log}") != text:
            raise BadInput(f"{name}: {log} is not as ladder share writes it")
    (into / "climb.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    for log, text in files.items():
        (into / log).write_text(text, encoding="utf-8")
