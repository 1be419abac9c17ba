"""How long reading a corpus takes, from the sizes of its files."""

from __future__ import annotations

from collections.abc import Sequence

from tasklm.budget.rules import seconds_to_read
from tasklm.corpus.sources import find_files
from tasklm.corpus.streams import COMPRESSED

PACKED = (*COMPRESSED, ".parquet")  # endings of compressed files


def reading_seconds(paths: Sequence[str]) -> float:
    """Seconds for reading and searching all given paths, folders and globs on an idle machine."""
    sizes = [(path.suffix.lower() in PACKED, path.stat().st_size) for path in find_files(paths)]
    packed = sum(size for is_packed, size in sizes if is_packed)
    return seconds_to_read(sum(size for _, size in sizes) - packed, packed)
