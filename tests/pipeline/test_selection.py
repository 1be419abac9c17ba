"""What decides whether a stored selection still fits."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tasklm.pipeline import selection
from tasklm.recipe.schema import Select


def key_of_selection(monkeypatch: pytest.MonkeyPatch, version: int) -> str:
    monkeypatch.setattr(selection, "SELECTION_FORMAT", version)
    stored = SimpleNamespace(build=lambda *_, **__: Path("x"), is_damaged=lambda _: False)
    run: Any = SimpleNamespace(artefacts=stored)
    task: Any = SimpleNamespace(key="task", members=[])
    corpus: Any = SimpleNamespace(key="corpus", folders=[], store=range(100))
    plan: Any = SimpleNamespace(passages=5, k=5)
    monkeypatch.setattr(selection, "equal_shares", lambda *_: False)
    return selection._found(run, task, corpus, plan, Select(k=5), "selected")[1]


def test_selections_of_another_format_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now, same, later = (key_of_selection(monkeypatch, version) for version in (2, 2, 3))
    assert now == same != later
