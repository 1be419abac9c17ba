"""onnxruntime is loaded in one place, with its telemetry switched off, or not at all."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tasklm.errors import RunError
from tasklm.export.exporting import export
from tasklm.export.onnx_graph import library
from tasklm.export.onnx_runtime import SWITCH, load_onnxruntime
from tasklm.tokens.tokenizer import Vocabulary
from tests.export.samples import saved

ROOT = Path(__file__).resolve().parents[2]
FILES = [
    path
    for folder in ("src", "tests", "benchmarks", "docs_build")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


class Runtime(SimpleNamespace):
    """Stands for the module: keeps what the variable was when the telemetry was switched off."""

    def disable_telemetry_events(self) -> None:
        self.variable = os.environ.get(SWITCH)


@pytest.fixture
def not_yet_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has neither the module nor the variable."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "onnxruntime"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delenv(SWITCH, raising=False)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """A module that is loaded already, with the variable set."""
    monkeypatch.setenv(SWITCH, "1")
    monkeypatch.setitem(sys.modules, "onnxruntime", stand_in := Runtime())
    return stand_in


def imports_onnxruntime(path: Path) -> bool:
    """Whether a file imports the package, by a statement or through a function that imports by
    name.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [str(node.module)]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in (
            "import_module",
            "importorskip",
        ):
            names = [str(word.value) for word in node.args if isinstance(word, ast.Constant)]
        if any(name.partition(".")[0] == "onnxruntime" for name in names):
            return True
    return False


def test_one_file_imports_onnxruntime() -> None:
    importing = [str(path.relative_to(ROOT)) for path in FILES if imports_onnxruntime(path)]
    assert importing == ["src/tasklm/export/onnx_runtime.py"]


def test_the_variable_is_set_before_the_module_is_loaded(
    not_yet_loaded: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "onnxruntime.py").write_text(
        f"import os\nvariable = os.environ.get({SWITCH!r})\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load_onnxruntime().variable == "1"
    assert sys.modules.pop("onnxruntime").__file__ == str(tmp_path / "onnxruntime.py")


def test_events_are_switched_off_as_well(runtime: Runtime) -> None:
    assert load_onnxruntime() is runtime and runtime.variable == "1"


@pytest.mark.parametrize("value", ["", "0"])
def test_a_module_that_was_loaded_with_its_telemetry_on_is_refused(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(SWITCH, value)
    with pytest.raises(RunError, match=f"{SWITCH}=1 in the environment before Python starts"):
        load_onnxruntime()
    with pytest.raises(RunError, match=SWITCH):
        library("onnxruntime.quantization")


def test_telemetry_that_cannot_be_switched_off_is_refused(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise RuntimeError("no such call")

    monkeypatch.setattr(runtime, "disable_telemetry_events", fails)
    with pytest.raises(RunError, match=r"cannot be switched off \(no such call\).*--engine torch"):
        load_onnxruntime()


def test_the_code_of_a_card_switches_telemetry_off_before_it_imports(
    vocabulary: Vocabulary, tmp_path: Path
) -> None:
    saved(tmp_path / "alone", vocabulary, layers=1)
    _, folder = export(tmp_path / "alone", "onnx", tmp_path / "out")
    code = (folder / "README.md").read_text(encoding="utf-8").split("```python\n")[1]
    assert 0 <= code.index(f'os.environ["{SWITCH}"] = "1"') < code.index("import onnxruntime")
