"""What a corpus is called wherever its index is kept."""

from __future__ import annotations

import hashlib

from tasklm.corpus.store import PassageStore


def content_key(store: PassageStore) -> str:
    """Returns a hash of all passage ids in order; an id is a hash of the passage's folded text, so equal means equal words."""
    hasher = hashlib.blake2b(digest_size=12)
    for number in range(len(store)):
        hasher.update(store.id(number).encode() + b"\n")
    return hasher.hexdigest()
