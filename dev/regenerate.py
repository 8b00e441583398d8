"""Make every generated file again: run it before you commit.

    python -m dev.regenerate

The counts of each script whose code has changed (ladder/measure/work.json), what is known of each
card (ladder/show/known.json), the blocks between markers in every page, and the pictures in docs/.
It takes seconds, and a few minutes if all scripts or dev/count_work.py have changed. A rung of the
ten that no climb has yet gets a row without a gain.
"""

import hashlib
import json
from pathlib import Path

from dev import count_work
from dev.blocks import render
from dev.pictures import pictures
from dev.reports import known_json
from ladder.checkout import ROOT, require_own
from ladder.cli import Parser
from ladder.commands.main import program
from ladder.disk import write_atomic
from ladder.measure.notes import code_of
from ladder.measure.scripts import rungs_for
from ladder.measure.work import SIZES, WORK, counted


def main():
    """Write what has changed."""
    Parser(__doc__).parse_args()
    require_own(Path(__file__))
    count_changed()
    write_atomic(ROOT / "ladder" / "show" / "known.json", known_json())
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("beyond/*.md")]:
        write_atomic(path, render(path.read_text("utf-8")))
    for name, picture in pictures().items():
        write_atomic(ROOT / "docs" / name, picture)
    print("done: git status says what has changed")


def count_changed():
    """Count each script whose code is not that of its counts in work.json, and write the file."""
    counts = {}
    for device in SIZES:
        counts[device] = {}
        for script in rungs_for(device):
            code = fingerprint(script)
            found = counted().get(device, {}).get(script.stem, {})
            if found.get("code") != code:
                print(f"counting {script.stem} for {device}", flush=True)
                found = count_work.count(script, device) | {"code": code}
            counts[device][script.stem] = found
    write_atomic(WORK, json.dumps(counts, indent=1) + "\n")
    counted.cache_clear()


def fingerprint(script: Path) -> str:
    """The hash of what a script's counts depend on: its code and count_work.py's, not comments."""
    digest = hashlib.sha256()
    for path in (script, Path(count_work.__file__)):
        for line in code_of(path).splitlines():
            code = line.partition("#")[0].rstrip()  # not ast.unparse: each Python has its own
            if code:
                digest.update(f"{code}\n".encode())
    return digest.hexdigest()[:12]


if __name__ == "__main__":
    raise SystemExit(program(main))
