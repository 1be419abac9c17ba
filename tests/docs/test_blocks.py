"""Every code block of README.md and docs/ is looked at: commands are parsed, recipes loaded, python
compiled, JSON read.
"""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from pathlib import Path

import pytest

from tasklm.errors import RecipeError
from tasklm.recipe.schema import from_dict, section_types
from tasklm.studying.study import study_from
from tests.docs.blocks import OUTPUT, PAGES, ROOT, SHELL, Block, blocks, commands, is_shell
from tests.docs.commands import WrongCommand, check

FILE_ENDINGS = {
    "csv",
    "tsv",
    "json",
    "jsonl",
    "toml",
    "py",
    "txt",
    "conll",
    "conllu",
    "parquet",
    "gz",
    "zst",
    "md",
    "html",
    "onnx",
    "safetensors",
}
NO_KEYS = {
    "budget.stage1_rate",
    "budget.stage2_rate",
}  # functions of budget/rules.py that a page names
KEYS = {
    f"{section}.{field.name}"
    for section, cls in section_types().items()
    for field in dataclasses.fields(cls)
}


def check_block(block: Block) -> None:
    """Raises where a block is not what it says it is."""
    if is_shell(block):
        for command in commands(block):
            check(command)
    elif block.language == "python":
        compile(block.text, block.name, "exec")
    elif block.language == "toml":
        values = tomllib.loads(block.text)
        if "rows" in values:
            study_from("a study", values)
        else:
            from_dict(values)
    elif block.language in ("json", "jsonl"):
        try:
            json.loads(block.text)
        except json.JSONDecodeError:
            for line in block.text.splitlines():
                json.loads(line)
    else:
        assert block.language in OUTPUT, (
            f"{block.name}: nothing checks "
            f"{block.language!r} blocks; use sh, python, toml, json or text"
        )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_is_right(page: Path) -> None:
    for block in blocks(page):
        check_block(block)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_recipe_key_in_the_text_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"--([a-z]+\.[a-z0-9_]+)", text))
    for code in re.findall(r"`([^`\n]+)`", text):
        match = re.match(r"([a-z]+\.[a-z0-9_]+)(?: |=|$)", code)
        if (
            match
            and match[1].split(".")[0] in section_types()
            and match[1].split(".")[1] not in FILE_ENDINGS
        ):
            named.add(match[1])
    strange = sorted(named - KEYS - NO_KEYS)
    assert not strange, f"{page}: no recipe key is called {strange}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        file = (page.parent / target).resolve()
        written_by_the_build = (
            file.parent == ROOT / "docs" / "reference"
        )  # docs_build/reference_pages.py; the site's test has these
        assert written_by_the_build or file.exists(), f"{page}: there is no {target}"


def test_the_pages_have_blocks_of_all_kinds() -> None:
    found = [block for page in PAGES for block in blocks(page)]
    assert sum(is_shell(block) for block in found) > 15
    assert {"python", "toml"} <= {block.language for block in found}
    verbs = {
        command.words[1]
        for block in found
        if is_shell(block)
        for command in commands(block)
        if command.words[0] == "tasklm"
    }
    assert {"fit", "run", "init", "check", "predict", "explain", "report"} <= verbs


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tasklm fitt train.csv", "there is no verb"),
        ("tasklm fit", "Missing argument"),
        ("tasklm fit train.csv --minuts 20", "minuts"),
        ("tasklm fit train.csv --minutes soon", "soon"),
        ("tasklm fit train.csv --train.stepz 20", "unknown key train.stepz"),
        ("tasklm fit train.csv --train.steps many", "whole number"),
        ("tasklm fit train.csv --train.objective elektra", "elektra"),
        ("tasklm fit train.csv --select.method bm52", "bm52"),
        ("tasklm search texts/ words --deep", "--deep"),
        ("tasklm run recipes/none.toml", "there is no recipes/none.toml"),
        ("torchrun --nproc-per-node 4 -m tasklm fit train.csv --select.q 3", "select.q"),
        ("make everything", "'everything' is no target"),
        ("pip install 'tasklm[sparks]'", "'sparks' is no extra"),
        ("python benchmarks/none.py", "there is no script"),
        ("python benchmarks/training.py --fast-please", "--fast-please"),
        ("curl https://example.org/data", "127.0.0.1"),
        ("tasklm check x.csv | grep-it", "'grep-it' is none of the known commands"),
    ],
)
def test_wrong_commands_are_found(tmp_path: Path, text: str, said: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n```sh\n{text}   # a comment\n```\n", encoding="utf-8")
    (block,) = blocks(page)
    with pytest.raises(WrongCommand, match=re.escape(said)):
        check_block(block)


def test_wrong_recipes_and_python_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        (
            "```toml\n[train]\nstepz = "
            "3\n```\n\n```python\nmodel = = 3\n```\n\n```rust\nfn main() {}\n```\n"
        ),
        encoding="utf-8",
    )
    recipe, code, other = blocks(page)
    with pytest.raises(RecipeError, match="stepz"):
        check_block(recipe)
    with pytest.raises(SyntaxError):
        check_block(code)
    with pytest.raises(AssertionError, match="rust"):
        check_block(other)


def test_blocks_and_commands_are_read(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '```\n$ tasklm predict m \'{"a b": 1}\'\n{"label": '
        "1}\n```\n- a list\n\n    tasklm report runs/first\n\n"
        "```\na tree\n  tasklm/\n```\n"
        "```console\n$ tasklm fit a.csv \\\n    --train.steps 3 && make test # done\n```\n",
        encoding="utf-8",
    )
    found = blocks(page)
    assert [is_shell(block) for block in found] == [True, True, False, True] and found[
        3
    ].language in SHELL
    words = [command.words for block in found if is_shell(block) for command in commands(block)]
    assert words == [
        ("tasklm", "predict", "m", '{"a b": 1}'),
        ("tasklm", "report", "runs/first"),
        ("tasklm", "fit", "a.csv", "--train.steps", "3"),
        ("make", "test"),
    ]
