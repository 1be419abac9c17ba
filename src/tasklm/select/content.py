"""The name of a corpus in its index."""

from __future__ import annotations

import hashlib

from tasklm.corpus.store import PassageStore


def content_key(store: PassageStore, start: int = 0, stop: int | None = None) -> str:
    """A hash of the ids of passages, in order; an id is a hash of the passage's folded text, so
    equal means equal words.
    """
    if stop is None:
        stop = len(store)
    return hashlib.blake2b(store.ids(start, stop).tobytes(), digest_size=12).hexdigest()
