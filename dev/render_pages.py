"""Write the blocks between markers in README.md and RUNLOG.md again.

`ladder publish` does this with a new climb. A rung that no climb has yet gets a row without
numbers.
"""

from ladder.files import ROOT, write_atomic
from ladder.show.blocks import render

if __name__ == "__main__":
    for name in ("README.md", "RUNLOG.md"):
        page = ROOT / name
        write_atomic(page, render(page.read_text(encoding="utf-8")).encode())
