"""The benchmark of start-up: its models are what it says, and its table has a row for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasklm.models.linear_model import LinearModel
from tasklm.models.networks import Networks
from tasklm.serve.predictor import Predictor


def test_the_models_are_a_linear_one_a_network_and_its_export(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_up, exported = module("start_up"), []
    monkeypatch.setattr(start_up, "export", lambda *given: exported.append(given))
    models = start_up.write_models(tmp_path)
    assert exported == [(models["NETWORK"], "onnx", models["ONNX-EXPORT"])]
    linear, network = Predictor(models["LINEAR-MODEL"]), Predictor(models["NETWORK"])
    assert isinstance(linear.answering, LinearModel) and isinstance(network.answering, Networks)
    texts = ["a lovely story", "a dull story"]
    assert [answer["label"] for answer in linear.answers(texts)] == ["good", "bad"]
    assert network.answers(texts) != linear.answers(texts)  # it says something


def test_the_shortest_time_of_each_command_is_taken(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_up, ran = module("start_up"), []

    def run(command: list[str], _: dict[str, str]) -> Any:
        ran.append(command)
        return start_up.Seconds(100.0 - len(ran), float(len(ran)))

    monkeypatch.setattr(start_up, "run", run)
    rows = start_up.commands({"MODEL": tmp_path}, verbs=False)
    assert list(rows)[-1] == 'tasklm predict MODEL "a text"' and len(rows) == 6
    times = start_up.measure(rows, 3, tmp_path)
    assert ran == list(rows.values()) * 4  # in turns, and once before
    assert [one.clock for one in times.values()] == [81, 80, 79, 78, 77, 76]  # of the last round
    assert [one.processor for one in times.values()] == [7, 8, 9, 10, 11, 12]  # of the first
