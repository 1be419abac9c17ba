"""BM25 selection by an Elasticsearch or OpenSearch server, as in the original TLM set-up (arXiv
2111.04130).

Each query is sent as its distinct words, each boosted by its count; the result per query is (score,
passage number), best first and ties by lower number. Word statistics are those of the whole index.
Banned passages are in the index, which other tasks share, so more than k hits are requested and the
banned ones dropped, and more again until there are k allowed ones or the server has no more.
Finished queries are kept on disk: an interrupted search continues.

A server allows a query of 1,024 words by default. A query with more distinct words is cut to those
with the largest weight (count · idf); a passage's score then lacks the others, the most common
ones.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tasklm.corpus.store import PassageStore
from tasklm.errors import RunError
from tasklm.select.base import Ranking, Workplace
from tasklm.select.checks import require_passages
from tasklm.select.elastic.client import (
    BUSY,
    CONTINUES,
    ElasticServer,
    Refusal,
    reason_of,
    send_until_done,
)
from tasklm.select.elastic.index import ElasticIndex, open_index, server_word
from tasklm.select.elastic.saved_hits import Hits, SavedHits

MOST_WORDS = 1024  # indices.query.bool.max_clause_count unless the server's owner changed it
_HITS_AT_ONCE = 200_000
_QUERIES_AT_ONCE = 200
_REQUEST_BYTES = 5 << 20
_SHARD_STATISTICS_JOINED = "search_type=dfs_query_then_fetch"
_ANSWERED = (
    "filter_path=error,status,"
    "responses.status,responses.error,responses.timed_out,responses._shards"
)


class ElasticSettings(Protocol):
    """What of the recipe's section `select` matters here."""

    @property
    def url(self) -> str: ...
    @property
    def k1(self) -> float: ...
    @property
    def b(self) -> float: ...
    @property
    def stemming(self) -> str: ...


@dataclass
class _Search:
    """One line of a multi-search."""

    number: int  # of the query, or of the word when words are counted
    body: dict[str, Any]


def elastic_ranking(
    queries: Sequence[Sequence[str]],
    store: PassageStore,
    banned: npt.NDArray[np.bool_],
    settings: ElasticSettings,
    k: int,
    place: Workplace,
) -> Ranking:
    """The k best passages of each query that are not banned, by the server at `settings.url`."""
    require_passages(len(store), banned)
    server = ElasticServer(settings.url)
    try:
        index = open_index(server, store, settings.k1, settings.b, settings.stemming, place)
        started = time.monotonic()
        ranking = _Asking(index, queries, banned, k, place).ranking()
    finally:
        server.close()
    place.tracker.event(
        "searched",
        engine="elastic",
        queries=len(queries),
        passages=len(store),
        found=len(ranking.passages),
        seconds=round(time.monotonic() - started, 3),
    )
    return ranking


class _Asking:
    """The search for all queries, batch after batch."""

    def __init__(
        self,
        index: ElasticIndex,
        queries: Sequence[Sequence[str]],
        banned: npt.NDArray[np.bool_],
        k: int,
        place: Workplace,
    ) -> None:
        self.index, self.queries, self.banned, self.place = index, queries, banned, place
        self.passages = len(banned)
        out = int(np.count_nonzero(banned))
        self.k = min(k, self.passages - out)
        self.most = self.k + out  # enough whatever the ranks of banned passages
        # twice the expected share of banned passages; a query that needs more is sent again
        self.first_size = min(
            self.most, self.k + -(-2 * self.k * out // self.passages) + min(out, 16)
        )
        self.frequencies: dict[str, int] = {}
        self.shortened = 0

    def ranking(self) -> Ranking:
        """The results of all queries, some of which an earlier process may have sent."""
        queries = self.queries
        saved = SavedHits(self.place.scratch / "elastic-search", self._key())
        step = max(1, min(_QUERIES_AT_ONCE, _HITS_AT_ONCE // self.first_size))
        started, first = time.monotonic(), saved.queries
        with self.place.tracker.progress("search on the server", total=len(queries)) as bar:
            bar.advance(first)
            while saved.queries < len(queries):
                rows = self._batch(saved.queries, min(saved.queries + step, len(queries)))
                saved.add(rows)
                rate = (saved.queries - first) / max(time.monotonic() - started, 1e-9)
                bar.advance(len(rows), f"{rate:,.0f} queries/s")
        if self.shortened:
            self.place.tracker.say(
                f"{self.shortened:,} queries have more than the {MOST_WORDS:,} distinct words "
                "that a server allows: their most common words were dropped"
            )
        return saved.ranking()

    def _key(self) -> str:
        """A hash of everything that the result depends on."""
        hasher = hashlib.blake2b(
            f"{self.index.name} {self.index.identity} {self.k}\n".encode(), digest_size=12
        )
        hasher.update(np.ascontiguousarray(self.banned).tobytes())
        for query in self.queries:
            hasher.update(" ".join(query).encode() + b"\n")
        return hasher.hexdigest()

    def _batch(self, start: int, stop: int) -> list[Hits]:
        """The allowed hits of queries start…stop."""
        bags = {
            number: Counter(map(server_word, self.queries[number])) for number in range(start, stop)
        }
        self._shorten(bags)
        rows: dict[int, Hits] = {number: [] for number in bags}
        asking, size = [number for number, bag in bags.items() if bag], self.first_size
        while asking:
            self.index.allow(size)
            step, again = max(1, _HITS_AT_ONCE // size), []
            for first in range(0, len(asking), step):
                part = asking[first : first + step]
                answers = self._search(
                    [_Search(number, _query(bags[number], size)) for number in part],
                    "responses.hits.hits.sort",
                )
                for number, answer in zip(part, answers, strict=True):
                    hits = self._hits(answer)
                    rows[number] = [
                        (score, passage) for score, passage in hits if not self.banned[passage]
                    ][: self.k]
                    if len(rows[number]) < self.k and len(hits) == size < self.most:
                        again.append(number)
            asking, size = again, min(2 * size, self.most)
        return [rows[number] for number in range(start, stop)]

    def _hits(self, answer: dict[str, Any]) -> Hits:
        hits: Hits = [
            (float(hit["sort"][0]), int(hit["sort"][1]))
            for hit in answer.get("hits", {}).get("hits", [])
        ]
        if any(not 0 <= passage < self.passages for _, passage in hits):
            raise RunError(
                f"{self.index.server.shown}: {self.index.name} contains passages from another "
                "corpus. Delete the index on the server and run the same command again to "
                "rebuild it."
            )
        return hits

    def _search(self, searches: Sequence[_Search], wanted: str) -> list[dict[str, Any]]:
        """The server's answer to each search, all of them whole."""
        server, name = self.index.server, self.index.name

        def send(part: Sequence[_Search]) -> list[Any]:
            answers: list[Any] = []
            for lines in _requests(part):
                path = f"/{name}/_msearch?{_SHARD_STATISTICS_JOINED}&{_ANSWERED},{wanted}"
                given = server.ask("POST", path, b"".join(lines)).get("responses", [])
                if len(given) != len(lines):
                    counts = f"{len(lines)} queries were sent but {len(given)} answered"
                    raise RunError(f"{server.shown}: {counts}. {CONTINUES}")
                answers += [_refused(answer) or answer for answer in given]
            return answers

        def fail(search: _Search, reason: str) -> RunError:
            remedy = CONTINUES
            if "clause" in reason:
                remedy = (
                    f"Raise indices.query.bool.max_clause_count of the server "
                    f"to {MOST_WORDS}, or shorten the queries with --select.queries rake."
                )
            return RunError(
                f"{server.shown}: query {search.number} in {name} failed: {reason}. {remedy}"
            )

        return send_until_done(searches, send, fail)

    def _shorten(self, bags: dict[int, Counter[str]]) -> None:
        """Cuts queries with too many distinct words to those with the largest weight; the server
        counts the words.
        """
        long = [number for number, bag in bags.items() if len(bag) > MOST_WORDS]
        for number in long:
            bag = bags[number]
            self._count([word for word in bag if word not in self.frequencies], number)
            weights = {
                word: count * self._idf(word)
                for word, count in bag.items()
                if self.frequencies[word]
            }
            heaviest = sorted(weights, key=lambda word: (-weights[word], word))[:MOST_WORDS]
            bags[number] = Counter({word: bag[word] for word in heaviest})
            self.shortened += len(weights) > MOST_WORDS

    def _count(self, unknown: Sequence[str], number: int) -> None:
        """Records in how many passages each word occurs."""
        for start in range(0, len(unknown), _QUERIES_AT_ONCE):
            part = unknown[start : start + _QUERIES_AT_ONCE]
            bodies = [
                {"query": {"term": {"text": {"value": word}}}, "size": 0, "track_total_hits": True}
                for word in part
            ]
            answers = self._search(
                [_Search(number, body) for body in bodies], "responses.hits.total"
            )
            for word, answer in zip(part, answers, strict=True):
                self.frequencies[word] = int(answer["hits"]["total"]["value"])

    def _idf(self, word: str) -> float:
        holders = self.frequencies[word]
        return math.log1p((self.passages - holders + 0.5) / (holders + 0.5))


def _query(bag: Counter[str], size: int) -> dict[str, Any]:
    clauses = [{"term": {"text": {"value": word, "boost": bag[word]}}} for word in sorted(bag)]
    return {
        "query": {"bool": {"should": clauses}},
        "size": size,
        "_source": False,
        "track_total_hits": False,
        "sort": [{"_score": {"order": "desc"}}, {"number": {"order": "asc"}}],
    }


def _requests(searches: Sequence[_Search]) -> list[list[bytes]]:
    """The searches as lines, shared out to requests of bounded size."""
    requests: list[list[bytes]] = []
    size = _REQUEST_BYTES
    for search in searches:
        lines = f"{{}}\n{json.dumps(search.body, ensure_ascii=False)}\n".encode()
        if size + len(lines) > _REQUEST_BYTES:
            requests.append([])
            size = 0
        requests[-1].append(lines)
        size += len(lines)
    return requests


def _refused(answer: dict[str, Any]) -> Refusal | None:
    """The problem with an answer: an error, a search stopped by a time limit, or shards that did
    not answer.
    """
    status, shards = int(answer.get("status", 0)), answer.get("_shards", {})
    if status != 200 or "error" in answer:
        return Refusal(f"{status} {reason_of(answer)}", status in BUSY)
    if answer.get("timed_out") is not False:
        return Refusal("the server's time limit stopped the search", True)
    if shards.get("failed", 1) or not shards.get("successful"):
        reasons = "; ".join(
            reason_of({"error": failure.get("reason")}) for failure in shards.get("failures", [])
        )
        return Refusal(f"{shards.get('failed', 'all')} shards failed: {reasons}", True)
    return None
