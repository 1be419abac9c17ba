"""How long a corpus takes to read follows from the sizes of its files, packed or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasklm.budget.reading import reading_seconds
from tasklm.budget.rules import seconds_to_read
from tasklm.recipe.data_sections import Data


def test_plain_and_packed_files_count_by_their_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"x" * 3_000_000)
    (tmp_path / "b.jsonl.gz").write_bytes(b"x" * 1_000_000)
    (tmp_path / "c.parquet").write_bytes(b"x" * 500_000)
    seconds = reading_seconds(Data(corpus=(str(tmp_path),)))
    assert seconds == pytest.approx(seconds_to_read(3_000_000, 1_500_000))
    assert seconds > reading_seconds(Data(corpus=(str(tmp_path / "a.txt"),))) > 0
    plain = reading_seconds(Data(corpus=(str(tmp_path / "a.txt"),))) / 3_000_000
    packed = reading_seconds(Data(corpus=(str(tmp_path / "b.jsonl.gz"),))) / 1_000_000
    assert packed > plain  # a packed byte holds more text
