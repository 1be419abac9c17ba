"""The passages of a corpus as an index on an Elasticsearch or OpenSearch server.

Passages are split by tasklm's own rules and sent joined by spaces, so that the server's
`whitespace` analyzer sees the same words as the local engine. Only word counts are stored there: no
positions and no text. The index is named after the corpus and the parameters of BM25; tasks share
it. It counts as complete only after every passage was acknowledged and counted; until then it is
never searched, and the same command continues where it stopped. Passages are sent with the
operation `create`: an existing one stays as it is; overwriting it would leave a deleted copy that
still counts in the server's word statistics.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasklm.corpus.store import PassageStore
from tasklm.errors import DamagedError, RunError
from tasklm.select.base import Workplace
from tasklm.select.content import content_key
from tasklm.select.elastic.client import (
    BUSY,
    CONTINUES,
    ElasticServer,
    Refusal,
    ServerError,
    reason_of,
    send_until_done,
)
from tasklm.select.lexical.terms import Stemmer, stemmer, terms
from tasklm.storage.files import digest, read_json, write_record

FORMAT = 1  # raise it when the documents or the splitting into words change
_BATCH_BYTES = 5 << 20
_READ_AT_ONCE = 512
_SHARD_PASSAGES = 50_000_000
_LONGEST_WORD = 127  # in characters: the server's analyzer cuts words above 255 units of UTF-16
_DEFAULT_WINDOW = 10_000  # hits per search that a server allows by default


@dataclass
class ElasticIndex:
    """A complete index on the server."""

    server: ElasticServer
    name: str
    identity: str  # the server's own id of it: a different one means that it was rebuilt
    window: int  # most hits per search

    def allow(self, hits: int) -> None:
        """Raises the server's limit on hits per search if it is below `hits`."""
        if hits > self.window:
            self.server.ask(
                "PUT", f"/{self.name}/_settings", {"index": {"max_result_window": hits}}
            )
            self.window = hits


def server_word(word: str) -> str:
    """The word as the server knows it: as it is, or a hash in place of one that is too long for its
    analyzer.
    """
    if len(word) <= _LONGEST_WORD:
        return word
    return hashlib.blake2b(word.encode(), digest_size=16).hexdigest()


def open_index(
    server: ElasticServer, store: PassageStore, k1: float, b: float, stemming: str, place: Workplace
) -> ElasticIndex:
    """The store's index, built or completed first if necessary."""
    name = f"tasklm-{digest(['elastic', FORMAT, content_key(store), k1, b, stemming])}"
    about = _look(server, name)
    if about is None:
        _create(server, name, len(store), k1, b)
        about = _look(server, name)
        if about is None:
            raise RunError(
                f"{server.shown}: the index {name} was created but does not exist. {CONTINUES}"
            )
    identity = str(about["settings"]["index"]["uuid"])
    if not about["mappings"].get("_meta", {}).get("complete"):
        _fill(server, name, identity, store, stemmer(stemming), place)
    elif (count := _count(server, name)) != len(store):
        raise RunError(
            f"{server.shown}: the index {name} has {count:,} passages, but the corpus has "
            f"{len(store):,}."
            " Delete the index on the server and run the same command again to rebuild it."
        )
    window = about["settings"]["index"].get("max_result_window", _DEFAULT_WINDOW)
    return ElasticIndex(server, name, identity, int(window))


def _look(server: ElasticServer, name: str) -> dict[str, Any] | None:
    """The index's settings and mappings; None if there is no index."""
    answer = server.ask("GET", f"/{name}", missing_is_empty=True)
    if not answer:
        return None
    about = answer.get(name)
    if not isinstance(about, dict):
        raise RunError(
            f"{server.shown}: {name} is an alias of another index. "
            "Delete the alias and run the same command again."
        )
    return about


def _create(server: ElasticServer, name: str, passages: int, k1: float, b: float) -> None:
    settings = {
        "number_of_shards": 1 + passages // _SHARD_PASSAGES,
        "number_of_replicas": 0,
        "refresh_interval": "-1",  # made visible once, at the end
        "similarity": {"tasklm": {"type": "BM25", "k1": k1, "b": b}},
    }
    mappings = {
        "dynamic": "strict",
        "_source": {"enabled": False},
        "_meta": {"complete": False},
        "properties": {
            "text": {
                "type": "text",
                "analyzer": "whitespace",
                "similarity": "tasklm",
                "index_options": "freqs",
            },
            "number": {"type": "long", "index": False},
        },
    }
    try:
        server.ask("PUT", f"/{name}", {"settings": {"index": settings}, "mappings": mappings})
    except ServerError as error:
        # created by an earlier try whose answer was lost, or by another run on the same corpus
        if "resource_already_exists_exception" not in reason_of(error.answer):
            raise


def _fill(
    server: ElasticServer,
    name: str,
    identity: str,
    store: PassageStore,
    stem: Stemmer | None,
    place: Workplace,
) -> None:
    """Sends the passages from where an earlier process stopped, counts them, and marks the index as
    complete.
    """
    record = place.scratch / "elastic-index.json"
    done = _done(record, identity)
    started, first = time.monotonic(), done
    with place.tracker.progress("index on the server", total=len(store)) as bar:
        bar.advance(done)
        for batch in _batches(store, done, stem):
            _send(server, name, batch)
            done = batch[-1][0] + 1
            write_record(record, {"identity": identity, "done": done})
            rate = (done - first) / max(time.monotonic() - started, 1e-9)
            bar.advance(len(batch), f"{rate:,.0f} passages/s")
    refreshed = server.ask("POST", f"/{name}/_refresh")
    if refreshed.get("_shards", {}).get("failed", 1):
        raise RunError(f"{server.shown}: {name} could not be refreshed on every shard. {CONTINUES}")
    if (count := _count(server, name)) != len(store):
        # so that all are sent again; the server keeps those it lacks
        record.unlink(missing_ok=True)
        raise RunError(
            f"{server.shown}: {len(store):,} passages were sent to {name}, but it has {count:,}."
            " Run the same command again to send the missing ones; "
            "if that does not help, delete the index on the server first."
        )
    server.ask("PUT", f"/{name}/_mapping", {"_meta": {"complete": True, "passages": len(store)}})
    place.tracker.event(
        "indexed",
        engine="elastic",
        index=name,
        passages=len(store),
        seconds=round(time.monotonic() - started, 3),
    )


def _done(record: Path, identity: str) -> int:
    """The number of passages that an earlier process sent to this index."""
    if not record.exists():
        return 0
    try:
        earlier = read_json(record)
    except DamagedError:
        return 0  # all are sent again; the server keeps those it lacks
    if earlier.get("identity") != identity:
        return 0
    return int(earlier["done"])


def _batches(
    store: PassageStore, start: int, stem: Stemmer | None
) -> Iterator[list[tuple[int, bytes]]]:
    """Yields passage numbers with their two lines of a bulk request, as many as fit in one."""
    batch: list[tuple[int, bytes]] = []
    size = 0
    for first in range(start, len(store), _READ_AT_ONCE):
        texts = store.texts(first, min(first + _READ_AT_ONCE, len(store)))
        for number, text in enumerate(texts, first):
            document = {"number": number, "text": " ".join(map(server_word, terms(text, stem)))}
            action = f'{{"create":{{"_id":"{number}"}}}}'
            lines = f"{action}\n{json.dumps(document, ensure_ascii=False)}\n".encode()
            if batch and size + len(lines) > _BATCH_BYTES:
                yield batch
                batch, size = [], 0
            batch.append((number, lines))
            size += len(lines)
    if batch:
        yield batch


def _send(server: ElasticServer, name: str, batch: Sequence[tuple[int, bytes]]) -> None:
    def send(part: Sequence[tuple[int, bytes]]) -> list[Any]:
        path = f"/{name}/_bulk?filter_path=error,status,items.create.status,items.create.error"
        items = server.ask("POST", path, b"".join(lines for _, lines in part)).get("items", [])
        if len(items) != len(part):
            raise RunError(
                f"{server.shown}: {len(part)} passages were sent to {name} but {len(items)} were "
                f"acknowledged. {CONTINUES}"
            )
        return [_outcome(item.get("create", {})) for item in items]

    def fail(item: tuple[int, bytes], reason: str) -> RunError:
        return RunError(
            f"{server.shown}: passage {item[0]} was not accepted into {name}: {reason}. {CONTINUES}"
        )

    send_until_done(batch, send, fail)


def _outcome(item: dict[str, Any]) -> Refusal | None:
    status = int(item.get("status", 0))
    if status in (200, 201, 409):  # 409: it exists already
        return None
    return Refusal(f"{status} {reason_of(item)}", status in BUSY)


def _count(server: ElasticServer, name: str) -> int:
    """The number of passages in the index."""
    answer = server.ask("GET", f"/{name}/_count")
    if answer.get("_shards", {}).get("failed", 1):
        raise RunError(
            f"{server.shown}: the passages of {name} "
            f"could not be counted on every shard. {CONTINUES}"
        )
    return int(answer["count"])
