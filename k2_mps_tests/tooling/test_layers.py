"""The tool's modules import only from lower layers and from their own package."""

import ast

from k2_mps_tests.tooling import support

# The layers, the lowest first.
LAYERS = ("core", "series", "stack", "build", "run", "carry", "wheel", "cli")
TOOL = support.TOOLS / "k2mps"


def imported(tree: ast.Module) -> list[tuple[int, str]]:
    """Returns [(line, package)] for each of a module's imports from the tool."""
    found = []
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found += [(node.lineno, name.split(".")[1]) for name in names if name.startswith("k2mps.")]
    return found


def test_every_module_is_in_a_layer():
    assert sorted(path.parent.name for path in TOOL.glob("*/__init__.py")) == sorted(LAYERS)
    assert sorted(path.name for path in TOOL.glob("*.py")) == ["__init__.py", "__main__.py"]


def test_imports_go_to_lower_layers():
    upwards = []
    for height, layer in enumerate(LAYERS):
        for path in sorted((TOOL / layer).rglob("*.py")):
            for line, name in imported(ast.parse(path.read_text())):
                if name in LAYERS[height + 1 :]:
                    upwards.append(f"{layer}/{path.name}:{line}: imports from {name}")
    assert upwards == []
