"""Text that is there already under other times: files that were copied, or taken from an archive
again, are known by what is in them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tasklm.artifacts import Artefacts
from tasklm.errors import DamagedError
from tasklm.storage.files import read_json
from tasklm.storage.safe_reading import open_regular

BLOCK = 1 << 20


def store_of_same_text(cache: Artefacts, files: Sequence[Path], settings: str) -> str | None:
    """The key of a store in the cache whose files had these names and this content, and which was
    made with these settings; None if there is none. Only files of equal sizes are read.
    """
    sizes = [(path.name, path.stat().st_size) for path in files]
    sums: list[str] = []
    for folder in sorted(cache.folder.glob("corpus-*")):
        key, about = cache.key(folder.name), _about(folder, settings)
        if key is None or [(one["name"], one["bytes"]) for one in about] != sizes:
            continue
        sums = sums or [_sha256(path) for path in files]
        if sums == [one["sha256"] for one in about]:
            return key
    return None


def _about(folder: Path, settings: str) -> list[dict[str, Any]]:
    """What a store has of its files; nothing if other settings made it, or it is damaged."""
    try:
        if read_json(folder / "store.json")["settings"] != settings:
            return []
        about: list[dict[str, Any]] = read_json(folder / "files.json")["files"]
    except (DamagedError, OSError, KeyError, TypeError):
        return []
    return about


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
