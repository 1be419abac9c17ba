"""The benchmark of the bill of text: it finds each change by name, and gives all files back."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import sentences, write_jsonl


@pytest.mark.usefixtures("speed_is_not_measured")
def test_changes_are_found_files_given_back_and_the_model_trained_again(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark = module("text_bill")
    (tmp_path / "corpus").mkdir()
    for number, name in enumerate(("news-0", "reviews-0")):
        texts = [" ".join(sentences(6, 100 * number + row)) for row in range(90)]
        write_jsonl(tmp_path / "corpus" / f"{name}.jsonl", [{"text": text} for text in texts])
    words = ["--corpus", str(tmp_path / "corpus"), "--work", str(tmp_path / "work")]
    small = {"train.steps": "2", "model.width": "16", "model.layers": "1", "model.heads": "2"}
    monkeypatch.setattr(benchmark, "SETTINGS", {**benchmark.SETTINGS, **small})
    monkeypatch.setattr("sys.argv", ["text_bill.py", *words, "--rows", "30", "--rounds", "1"])
    with pytest.raises(SystemExit) as ended:
        benchmark.main()
    printed = capsys.readouterr().out
    assert ended.value.code == 0, printed
    assert "| flipped | 4 | 4 | 4 | 0 |" in printed  # two of the corpus, train and dev
    assert "| gone | 4 | 4 | 4 | 4 |" in printed
    assert "gives the same weights: yes" in printed
    assert not benchmark.verify_bill(tmp_path / "work" / "runs" / "first").problems


def test_a_file_is_another_one_of_the_same_time_for_a_while(module: Any, tmp_path: Path) -> None:
    benchmark, path = module("text_bill"), tmp_path / "a.txt"
    path.write_text("some text", encoding="utf-8")
    before = path.stat()
    with benchmark.changed(path, "flipped", random.Random(1)):
        assert len(path.read_bytes()) == 9 and path.read_bytes() != b"some text"
        assert path.stat().st_mtime_ns == before.st_mtime_ns
    with benchmark.changed(path, benchmark.GONE, random.Random(1)):
        assert not path.exists()
    assert path.read_bytes() == b"some text"
    assert path.stat().st_mtime_ns == before.st_mtime_ns
