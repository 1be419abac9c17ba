"""What one kind of task needs stands in tasks/: the rest of the package asks the protocol, and
never which kind it has before it.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tasklm.tasks.base import TASKS

PACKAGE = Path(__file__).parents[1] / "src" / "tasklm"
KINDS = {"classify", "multilabel", "regress", "choice", "tag", "span", "parse", "translate"}
ANY_KIND = {
    "base",
    "examples",
    "audit",
    "metrics",
    "marks",
    "several",
    "members",
    "text_lessons",
    "turns",
    "rivals",
    "image_classes",
    "readers.image_files",
    "readers.splits",
    "readers.several",
    "readers.labelled_share",
    "readers.formats",
    "readers.columns",
    "readers.folders",
    "readers.texts",
    "readers.sheets",
    "readers.label_sets",
    "readers.conll",
    "consistency.base",
    "consistency.writing",
    "heads.layers",
    "heads.turns",
    "baselines.wide",
    "baselines.wide_parts",
    "baselines.wide_fitting",
    "baselines.refitting",
    "baselines.text_vectors",
    "baselines.featuriser",
    "baselines.fitted_files",
    "baselines.counted",
    "answer_sets",
    "writing",
    "beam_search",
    "heads.decoders",
    "saved",
}  # modules of tasks/ that serve all kinds
OUTSIDE = [
    path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.relative_to(PACKAGE).parts[0] not in ("tasks", "demo")
]


def faults(source: str) -> list[str]:
    """Where code looks at the kind of a task: comparisons with a kind's name, isinstance of its
    class, imports of its module.
    """
    classes = {TASKS.get(kind).__name__ for kind in KINDS}
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            words = {
                leaf.value
                for side in sides
                for leaf in ast.walk(side)
                if isinstance(leaf, ast.Constant) and leaf.value in KINDS
            }
            asks = any(
                isinstance(leaf, ast.Attribute) and leaf.attr == "kind"
                for side in sides
                for leaf in ast.walk(side)
            )
            found += [f"line {node.lineno}: compares with {', '.join(sorted(words))}"] * bool(
                words and (asks or _names_kind(sides))
            )
        elif isinstance(node, ast.Match):
            cases = {
                leaf.value
                for case in node.cases
                for leaf in ast.walk(case.pattern)
                if isinstance(leaf, ast.Constant)
            }
            found += [f"line {node.lineno}: matches {sorted(cases & KINDS)}"] * bool(cases & KINDS)
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("isinstance", "issubclass")
        ):
            asked = {
                leaf.id if isinstance(leaf, ast.Name) else leaf.attr
                for leaf in ast.walk(node)
                if isinstance(leaf, ast.Name | ast.Attribute)
            }
            found += [
                f"line {node.lineno}: isinstance of {name}" for name in sorted(asked & classes)
            ]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            names = [f"{module}.{alias.name}".lstrip(".") for alias in node.names]
            parts = [_module_of(name) for name in names if name.startswith("tasklm.tasks.")]
            found += [
                f"line {node.lineno}: imports tasklm.tasks.{part}"
                for part in parts
                if part not in ANY_KIND
            ]
    return found


def _module_of(name: str) -> str:
    """The module of tasks/ that an imported name is of: with its folder where it is in one."""
    parts = name.split(".")[2:]
    return ".".join(parts[: 2 if (PACKAGE / "tasks" / parts[0]).is_dir() else 1])


def _names_kind(sides: list[ast.expr]) -> bool:
    return any(
        isinstance(leaf, ast.Name) and leaf.id == "kind"
        for side in sides
        for leaf in ast.walk(side)
    )


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_kind_is_asked_for_outside_tasks(path: Path) -> None:
    assert faults(path.read_text(encoding="utf-8")) == []


def test_every_kind_is_known_to_this_test() -> None:
    files = {
        path.stem
        for path in (PACKAGE / "tasks").glob("*.py")
        if "@TASKS.register(" in path.read_text(encoding="utf-8")
    }
    assert files == {*KINDS, "several"}  # which is made of these, and is never asked for by name


@pytest.mark.parametrize(
    "source",
    [
        'if task.kind == "span": pass',
        'if recipe.data.kind in ("tag", "parse"): pass',
        'x = 1 if "choice" != kind else 2',
        'match task.kind:\n    case "regress" | "classify": pass',
        "isinstance(task, Span)",
        "isinstance(task, (int, choice.Choice))",
        "from tasklm.tasks.tag import Tag",
        "from tasklm.tasks import parse",
        "import tasklm.tasks.heads.crf",
    ],
)
def test_what_must_not_be_is_found(source: str) -> None:
    assert len(faults(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        'if word == "parse": pass',
        'if task.kind == "ours": pass',
        "from tasklm.tasks.base import TASKS",
    ],
)
def test_other_code_is_left_alone(source: str) -> None:
    assert faults(source) == []
