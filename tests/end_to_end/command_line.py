"""Commands in this process, and what they say where something is wrong."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from tasklm.cli.app import app
from tasklm.errors import TaskLMError
from tasklm.recipe.toml import dump, load
from tests.end_to_end.conftest import options

runner = CliRunner()


def words(given: dict[str, str]) -> list[str]:
    return [word for key, value in given.items() for word in (f"--{key}", value)]


def fit_error(files: Path, out: Path, **changes: str) -> str:
    """Runs `fit` with something wrong and returns the message that the person would read."""
    given = options(files, **changes)
    result = runner.invoke(app, ["fit", given.pop("data.train"), "--out", str(out), *words(given)])
    assert isinstance(result.exception, TaskLMError), result.output
    return str(result.exception)


def run_folder(tmp_path: Path, given: dict[str, str]) -> Path:
    """A folder with a recipe, for verbs that go on from one."""
    out = tmp_path / "run"
    out.mkdir()
    (out / "recipe.toml").write_text(dump(load(None, given)), encoding="utf-8")
    return out
