"""Which module may import which."""

import re

from ladder.checkout import ROOT

# Each floor imports only itself and those before it. __main__.py starts the last one.
FLOORS = ("ladder", "ladder.measure", "ladder.show", "ladder.commands")


def test_each_floor_imports_only_those_before_it():
    for number, floor in enumerate(FLOORS):
        for path in (ROOT / floor.replace(".", "/")).glob("[!_]*.py"):
            for later in FLOORS[number + 1 :]:
                name = later.removeprefix("ladder.")
                line = rf"^ *((from|import) {later}\b|from ladder import .*\b{name}\b)"
                imports = re.search(line, path.read_text(), re.MULTILINE)
                assert not imports, f"{path} imports {later}"
