"""The house keeps its plan: imports go one way, files and functions stay
short, words stay clean.
"""

from __future__ import annotations

import ast
import functools
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.house import AIMS, measure

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "tasklm"
ORDER = [
    {"errors"},
    {"storage", "registry", "console"},
    {"recipe", "tracking"},
    {"artifacts", "run_folder"},
    {"bill"},
    {"corpus"},
    {"tasks"},
    {"select"},
    {"tokens"},
    {"encoders"},
    {"budget"},
    {"objectives", "device"},
    {"models"},
    {"students"},
    {"evaluate"},
    {"coverage"},
    {"export"},
    {"train"},
    {"influence", "forecasting"},
    {"analysis"},
    {"report"},
    {"serve", "watch"},
    {"labelling"},
    {"demo"},
    {"pipeline"},
    {"images"},
    {"contestants"},
    {"comparing"},
    {"studying", "updating"},
    {"api", "notebook"},
    {"cli"},
    {"__main__"},
]
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}
FILES = sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return [name for name in found if name.startswith("tasklm.")]


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if path != PACKAGE / "__init__.py"],
    ids=lambda p: str(p.relative_to(PACKAGE)),
)
def test_imports_go_one_way(path: Path) -> None:
    here = part_of(path)
    assert here in RANK, f"{here} has no place in the order"
    for name in imports_of(path):
        there = name.split(".")[1]
        assert there == here or RANK[there] <= RANK[here], f"{here} must not import {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_names_come_from_the_module_that_defines_them(path: Path) -> None:
    for name in imports_of(path):
        parts = name.split(".")
        folder = PACKAGE.joinpath(*parts[1:-1])
        if folder.is_dir() and len(parts) > 2:
            assert (folder / f"{parts[-1]}.py").exists(), f"{name} is imported through an __init__"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_files_and_functions_stay_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < 60, f"{node.name} is too long"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_nothing_is_unpickled(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for word in (
        "import pickle",
        "torch.load(",
        "allow_pickle=True",
        "trust_remote_code",
        "eval(",
        "exec(",
    ):
        assert word not in text.replace(".eval(", ""), f"{word} in {path}"


def test_training_runs_without_the_packages_a_locked_down_gpu_machine_lacks() -> None:
    allowed = {"torch", "numpy", "tokenizers", "safetensors", "numba", "triton", "tasklm"}
    for folder in ("tokens", "encoders", "objectives", "students", "train"):
        for path in (PACKAGE / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
                for name in names:
                    top = name.split(".")[0]
                    assert top in allowed or top in __import__("sys").stdlib_module_names, (
                        f"{path} imports {name}"
                    )


def test_the_architecture_page_has_this_order() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    written = re.search(r"`(errors [^`]+)`", page)
    assert written is not None
    assert [set(rank.split()) for rank in written[1].split("<")] == ORDER


@pytest.mark.parametrize("folder", [".", "tasks", "train"])
def test_the_readme_names_the_files_of_the_folders_that_it_lists(folder: str) -> None:
    tree = (ROOT / "README.md").read_text(encoding="utf-8").partition("## The files")[2]
    names = set(re.findall(r"[\w*]+\.py\b", tree))
    files = {path.name for path in (PACKAGE / folder).glob("*.py")} - {"__init__.py", "__main__.py"}
    assert [file for file in sorted(files) if not any(fnmatch(file, name) for name in names)] == []


def test_the_readme_names_no_file_that_is_gone() -> None:
    tree = (ROOT / "README.md").read_text(encoding="utf-8").partition("## The files")[2]
    files = {path.name for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.py")}
    assert [name for name in re.findall(r"[\w]+\.py\b", tree) if name not in files] == []


def test_options_walk_through_files_that_exist_and_through_none_twice() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    walks = re.findall(r"^- `--[\w.]+`: (.+)$", page, re.MULTILINE)
    assert len(walks) == 3
    for walk in walks:
        files = re.findall(r"`([\w/]+\.py)`", walk)
        assert len(files) == len(set(files)) > 4
        assert all((PACKAGE / file).exists() for file in files)


@functools.cache
def _measured() -> dict[str, float]:
    return measure(FILES)


@pytest.mark.parametrize("aim", sorted(AIMS))
def test_the_code_reads_as_it_should(aim: str) -> None:
    assert _measured()[aim] <= AIMS[aim]
