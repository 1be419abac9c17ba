"""How long reading a corpus takes, from the sizes of its files."""

from __future__ import annotations

from tasklm.budget.rules import seconds_to_read
from tasklm.corpus.corpus_text import local_text
from tasklm.corpus.streams import COMPRESSED
from tasklm.recipe.data_sections import Data

PACKED = (*COMPRESSED, ".parquet")  # endings of compressed files


def reading_seconds(data: Data) -> float:
    """Seconds for reading and searching the files of a corpus on an idle machine."""
    files = local_text(data).files
    sizes = [(path.suffix.lower() in PACKED, path.stat().st_size) for path in files]
    packed = sum(size for is_packed, size in sizes if is_packed)
    return seconds_to_read(sum(size for _, size in sizes) - packed, packed)
