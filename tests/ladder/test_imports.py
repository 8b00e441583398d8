"""Which module may import which."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

from ladder.checkout import ROOT


def imports(path: Path) -> set[str]:
    """The modules that a file imports, and the names that it imports from them."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = getattr(node, "module", None)
            for name in node.names:
                found |= {module, name.name, f"{module}.{name.name}"}
    return found


def module_imports() -> dict[str, set[str]]:
    """The modules of ladder/ that each module of it imports."""
    paths = {}
    for path in (ROOT / "ladder").rglob("[!_]*.py"):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        paths[name] = path
    return {name: imports(path) & paths.keys() for name, path in paths.items()}


# Each floor imports only itself and those before it. __main__.py starts the last one.
FLOORS = ("ladder", "ladder.measure", "ladder.show", "ladder.commands")


def floor(module: str) -> int:
    parent = module.rpartition(".")[0]
    return FLOORS.index(parent)


def test_each_floor_imports_only_those_before_it_and_none_in_a_circle():
    graph = module_imports()
    for name, imported in graph.items():
        for other in imported:
            assert floor(other) <= floor(name), f"{name} imports {other}"
    tuple(TopologicalSorter(graph).static_order())  # raises CycleError
