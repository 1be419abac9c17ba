"""Python blocks are run, page by page, with small trainings; the recipes of the repository load."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.docs.blocks import PAGES, ROOT, Block, blocks
from tests.docs.conftest import names_of_pages

TABLES = (
    ROOT / "docs" / "how-to" / "studies.md"
)  # trains a table of models; tests/studying/ has it small
WITH_PYTHON = [
    page
    for page in PAGES
    if page != TABLES and any(block.language == "python" for block in blocks(page))
]
OPTIONAL = {
    "onnx",
    "onnxruntime",
    "fastapi",
    "uvicorn",
    "httpx",
    "transformers",
    "matplotlib",
    "pyspark",
    "tensorboard",
    "snowballstemmer",
}


def run_python(page_blocks: list[Block]) -> None:
    """Runs python blocks one after the other, as one program."""
    names = names_of_pages()
    for block in page_blocks:
        code = compile("\n" * (block.line - 1) + block.text, block.name, "exec")
        try:
            exec(code, names)
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] not in OPTIONAL:
                raise
            pytest.skip(f"{block.name} needs {error.name}, which is not installed here: NOT RUN")


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_run(page: Path, scratch_with_run: Path) -> None:
    run_python([block for block in blocks(page) if block.language == "python"])


def test_an_error_in_a_python_block_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nhere = 1\n```\n\n```python\nprint(here + there)\n```\n", encoding="utf-8"
    )
    with pytest.raises(NameError, match="there"):
        run_python(blocks(page))


def test_the_recipes_load() -> None:
    from tasklm.recipe.toml import load

    for recipe in sorted((ROOT / "recipes").rglob("*.toml")):
        assert tomllib.loads(recipe.read_text(encoding="utf-8")) and load(recipe)
