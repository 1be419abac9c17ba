"""Measures of how the code reads, and what they may be at most.

python tests/house.py            # the whole package
python tests/house.py train      # one room of it
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "src" / "tasklm"
MOST_LINES = 400  # of a file
VAGUE = {"found", "shown", "asked", "kept", "made", "told", "said", "how"}
# Per 1,000 lines, but for the first five.
AIMS = {
    "files at the top": 9,
    "lines over 100 columns": 0,
    "files over 400 lines": 0,
    "test files over 400 lines": 0,
    "functions of 60 lines or more": 0,
    "ternaries": 10.0,
    "comprehensions with several for": 0.3,
    "calls that spread a bundle": 1.0,
    "vague names": 0.0,
    "docstrings that begin with Returns, %": 20.0,
    "functions with more than 6 parameters": 0,
}
_COMPILED = ("compiled", "compiled_when_called", "njit", "jit")  # arrays come one by one there
_PRAGMA = re.compile(r"\s*# (type: ignore\[[\w, -]+\]|noqa.*)$")
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def measure(files: Sequence[Path]) -> dict[str, float]:
    """The measures of some files, and of the lengths of all tests, by the names of `AIMS`."""
    counts: Counter[str] = Counter()
    for path in files:
        counts.update(_counts_of(path))
    thousands = max(1, counts["lines"]) / 1000
    docstrings = max(1, counts["docstrings"])
    return {
        "files at the top": sum(path.parent == PACKAGE for path in files),
        "lines over 100 columns": counts["wide"],
        "files over 400 lines": counts["long files"],
        "test files over 400 lines": sum(map(_is_long, TESTS.rglob("*.py"))),
        "functions of 60 lines or more": counts["long functions"],
        "ternaries": counts["ternaries"] / thousands,
        "comprehensions with several for": counts["several for"] / thousands,
        "calls that spread a bundle": counts["spread"] / thousands,
        "vague names": counts["vague"] / thousands,
        "docstrings that begin with Returns, %": 100 * counts["returns"] / docstrings,
        "functions with more than 6 parameters": counts["many parameters"],
    }


def _is_long(path: Path) -> bool:
    return len(path.read_text(encoding="utf-8").splitlines()) > MOST_LINES


def _counts_of(path: Path) -> Counter[str]:
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    counts = Counter(lines=len(lines))
    counts["wide"] = sum(len(_PRAGMA.sub("", line)) > 100 for line in lines)
    counts["long files"] = int(_is_long(path))
    for node in ast.walk(ast.parse(text)):
        counts.update(_names_of(node))
    if path.parent.name == "cli":
        counts["many parameters"] = 0  # a verb has an option for each
    return counts


def _names_of(node: ast.AST) -> Iterable[str]:
    """What a node of the syntax tree counts as."""
    if isinstance(node, ast.IfExp):
        yield "ternaries"
    elif isinstance(node, _COMPREHENSIONS) and len(node.generators) > 1:
        yield "several for"
    elif isinstance(node, ast.Call) and any(_is_bundle(one) for one in node.args):
        yield "spread"
    elif _bound_name(node) in VAGUE:
        yield "vague"
    elif isinstance(node, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
        yield "docstrings"
        yield from ["returns"] * str(ast.get_docstring(node)).startswith("Returns")
    if isinstance(node, ast.FunctionDef):
        assert node.end_lineno is not None
        yield from ["long functions"] * (node.end_lineno - node.lineno >= 60)
        names = [one.arg for one in (*node.args.args, *node.args.kwonlyargs)]
        count = len([name for name in names if name not in ("self", "cls", "ctx")])
        yield from ["many parameters"] * (count > 6 and not _is_exempt(node))


def _bound_name(node: ast.AST) -> str:
    if isinstance(node, ast.arg):
        return node.arg
    bound = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    return node.id if bound and isinstance(node, ast.Name) else ""


def _is_exempt(node: ast.FunctionDef) -> bool:
    """Whether a function is compiled."""
    decorators = " ".join(ast.unparse(one) for one in node.decorator_list)
    names = re.findall(r"\w+", decorators)
    return bool(set(names) & set(_COMPILED))


def _is_bundle(node: ast.expr) -> bool:
    return isinstance(node, ast.Starred) and isinstance(node.value, ast.Name | ast.Attribute)


def main() -> None:
    """Prints the measures of the package, or of the rooms that are named."""
    files = sorted(PACKAGE.rglob("*.py"))
    if rooms := sys.argv[1:]:
        files = [path for path in files if path.relative_to(PACKAGE).parts[0] in rooms]
    for name, value in measure(files).items():
        print(f"{name:42} {value:8.1f}   at most {AIMS[name]}")


if __name__ == "__main__":
    main()
