"""Task examples as units, made from plain texts and numbers of classes; folders whose files a test
has changed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tasklm.storage.checksums import seal
from tasklm.tasks.examples import Example
from tasklm.tasks.readers.texts import encode_examples
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.tokenizer import Vocabulary


def reseal(folder: Path) -> None:
    """Writes the records of a folder anew, with the checksums of what a test has put there."""
    for name in ("config.json", "export.json", "artefact.json"):
        if not (folder / name).exists():
            continue
        record = json.loads((folder / name).read_text(encoding="utf-8"))
        record.pop("crc32", None)
        files = [folder / file for file in record.pop("files", {}) if (folder / file).exists()]
        seal(folder / name, record, files)


def encoded_texts(
    texts: Sequence[Sequence[str]],
    vocabulary: Vocabulary,
    length: int,
    targets: Sequence[int] | Any | None = None,
) -> EncodedExamples:
    """Returns texts (or pairs of texts) as units, each with a target (the number of its class) or
    several.
    """
    examples = [Example(tuple(parts), None) for parts in texts]
    units = encode_examples(examples, vocabulary, length)
    if targets is not None:
        for unit, target in zip(units, targets, strict=True):
            unit.targets = np.asarray(target, np.int64)[None]
    return EncodedExamples(examples, units, vocabulary, length)
