"""Stands for an Elasticsearch or OpenSearch server in tests: the endpoints that tasklm uses, on
127.0.0.1, in this process.

It follows the public documentation of the two servers: documents become visible on refresh,
`create` of one that is there is a conflict, unknown fields are refused, `filter_path` drops what is
empty, scores are Lucene's BM25 in single precision, and the limits on clauses, hits and request
size are kept. It can be told to fail in every way that tasklm must bear.
"""

from __future__ import annotations

import base64
import json
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

CUT, CUT_AFTER = (
    "cut",
    "cut after",
)  # the connection ends before, or after, the server has done what was asked


class Problem(Exception):
    """What the server answers when it refuses."""

    def __init__(self, status: int, kind: str, reason: str) -> None:
        self.status = status
        self.error = {
            "root_cause": [{"type": kind, "reason": reason}],
            "type": kind,
            "reason": reason,
        }
        super().__init__(reason)

    def answer(self) -> dict[str, Any]:
        return {"error": self.error, "status": self.status}


@dataclass
class Index:
    settings: dict[str, Any]
    mappings: dict[str, Any]
    uuid: str
    documents: dict[str, tuple[int, Counter[str]]] = field(
        default_factory=dict
    )  # id → number, words
    visible: dict[str, tuple[int, Counter[str]]] = field(default_factory=dict)

    def search(
        self, clauses: list[tuple[str, float]], lossy: bool, factor: float
    ) -> list[tuple[float, int]]:
        """Returns (score, number) of every visible document that holds a clause's word, in Lucene's
        arithmetic.
        """
        single = np.float32
        dials = self.settings["similarity"][self.mappings["properties"]["text"]["similarity"]]
        k1, b = single(dials["k1"]), single(dials["b"])
        bags = [
            bag for _, bag in self.visible.values() if bag
        ]  # documents without a word do not count
        average = single(sum(sum(bag.values()) for bag in bags) / max(len(bags), 1))
        weights = []
        for word, boost in clauses:
            holders = sum(word in bag for bag in bags)
            weights.append(
                single(boost * factor)
                * single(math.log(1 + (len(bags) - holders + 0.5) / (holders + 0.5)))
            )
        hits = []
        for number, bag in self.visible.values():
            length = stored_length(sum(bag.values())) if lossy else sum(bag.values())
            total, found = 0.0, False
            with np.errstate(divide="ignore"):
                inverse = (
                    single(1) / (k1 * ((single(1) - b) + b * single(length) / average))
                    if bag
                    else single(0)
                )
            for (word, _), weight in zip(clauses, weights, strict=True):
                if word in bag:
                    found = True
                    total += float(weight - weight / (single(1) + single(bag[word]) * inverse))
            if found:
                hits.append((float(single(total)), number))
        return sorted(hits, key=lambda hit: (-hit[0], hit[1]))


def stored_length(length: int) -> int:
    """The length that Lucene remembers of a field: exact below 40, then 4 significant bits above
    24.
    """
    if length < 24:
        return length
    rest = length - 24
    shift = max(rest.bit_length() - 4, 0)
    return 24 + (rest >> shift << shift)


class ElasticDouble:
    """The server; change its attributes to make it fail."""

    def __init__(self) -> None:
        self.indexes: dict[str, Index] = {}
        self.requests: list[tuple[str, str]] = []
        self.made = 0
        self.max_clauses, self.max_body = 1024, 100 << 20
        self.lossy, self.factor = False, 1.0
        self.credentials: str | None = None
        self.before: Callable[[str, str], Any] = lambda method, path: (
            None
        )  # → CUT, CUT_AFTER or (status, headers, body)
        self.refuse: Callable[[str], tuple[int, str, str] | None] = lambda identity: (
            None
        )  # a document of a bulk request
        self.spoil: Callable[[dict[str, Any]], dict[str, Any] | None] = lambda body: (
            None
        )  # a search of a multi-search
        self.url = ""

    def count(self, end: str) -> int:
        """How many requests went to paths with this end."""
        return sum(path.endswith(end) for _, path in self.requests)

    def do(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        """The answer to a request, or raises Problem."""
        name, _, action = path.strip("/").partition("/")
        if method == "PUT" and not action:
            return self._create(name, json.loads(body))
        if name not in self.indexes:
            raise Problem(404, "index_not_found_exception", f"no such index [{name}]")
        index = self.indexes[name]
        if (method, action) == ("GET", ""):
            settings = {**index.settings, "uuid": index.uuid}
            return {
                name: {"aliases": {}, "mappings": index.mappings, "settings": {"index": settings}}
            }
        if (method, action) == ("POST", "_bulk"):
            return self._bulk(index, body)
        if (method, action) == ("POST", "_refresh"):
            index.visible = dict(index.documents)
            return {"_shards": {"total": 1, "successful": 1, "failed": 0}}
        if (method, action) == ("GET", "_count"):
            return {
                "count": len(index.visible),
                "_shards": {"total": 1, "successful": 1, "skipped": 0, "failed": 0},
            }
        if (method, action) == ("POST", "_msearch"):
            return self._msearch(index, body)
        if (method, action) == ("PUT", "_mapping"):
            index.mappings.update(json.loads(body))
            return {"acknowledged": True}
        if (method, action) == ("PUT", "_settings"):
            index.settings.update(
                {key: str(value) for key, value in json.loads(body)["index"].items()}
            )
            return {"acknowledged": True}
        raise Problem(405, "method_not_allowed", f"{method} {path}")

    def _create(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        if name in self.indexes:
            raise Problem(
                400, "resource_already_exists_exception", f"index [{name}] already exists"
            )
        if (
            name != name.lower()
            or body["mappings"]["properties"]["text"]["analyzer"] != "whitespace"
        ):
            raise Problem(400, "invalid_index_name_exception", name)
        self.made += 1
        self.indexes[name] = Index(body["settings"]["index"], body["mappings"], f"uuid-{self.made}")
        return {"acknowledged": True, "shards_acknowledged": True, "index": name}

    def _bulk(self, index: Index, body: bytes) -> dict[str, Any]:
        lines = _lines(body)
        items = [
            self._one(index, json.loads(action), json.loads(source))
            for action, source in zip(lines[::2], lines[1::2], strict=True)
        ]
        return {
            "took": 1,
            "errors": any("error" in item["create"] for item in items),
            "items": items,
        }

    def _one(self, index: Index, action: dict[str, Any], source: dict[str, Any]) -> dict[str, Any]:
        identity = action["create"]["_id"]
        refusal = self.refuse(identity)
        if refusal is None and identity in index.documents:
            refusal = (
                409,
                "version_conflict_engine_exception",
                f"[{identity}]: version conflict, document already exists",
            )
        if refusal is None and not source.keys() <= index.mappings["properties"].keys():
            refusal = (400, "strict_dynamic_mapping_exception", "mapping set to strict")
        if refusal is not None:
            status, kind, reason = refusal
            return {
                "create": {
                    "_id": identity,
                    "status": status,
                    "error": {"type": kind, "reason": reason},
                }
            }
        index.documents[identity] = (source["number"], Counter(_analysed(source["text"])))
        return {"create": {"_id": identity, "status": 201, "result": "created"}}

    def _msearch(self, index: Index, body: bytes) -> dict[str, Any]:
        responses = []
        lines = _lines(body)
        for header, search in zip(lines[::2], lines[1::2], strict=True):
            assert json.loads(header) == {}
            asked = json.loads(search)
            try:
                responses.append(self.spoil(asked) or self._search(index, asked))
            except Problem as problem:
                responses.append(problem.answer())
        return {"took": 1, "responses": responses}

    def _search(self, index: Index, body: dict[str, Any]) -> dict[str, Any]:
        size, window = body["size"], int(index.settings.get("max_result_window", 10_000))
        if size > window:
            reason = (
                f"Result window is too large, from + size must be "
                f"less than or equal to: [{window}] but was [{size}]"
            )
            raise Problem(400, "illegal_argument_exception", reason)
        query = body["query"]
        leaves = query["bool"]["should"] if "bool" in query else [query]
        if len(leaves) > self.max_clauses:
            raise Problem(400, "too_many_clauses", f"maxClauseCount is set to {self.max_clauses}")
        terms = [leaf["term"]["text"] for leaf in leaves]
        hits = index.search(
            [(term["value"], term.get("boost", 1.0)) for term in terms], self.lossy, self.factor
        )
        shown = []
        if size:
            assert body["sort"] == [{"_score": {"order": "desc"}}, {"number": {"order": "asc"}}]
            shown = [
                {"_index": "i", "_id": str(number), "_score": score, "sort": [score, number]}
                for score, number in hits[:size]
            ]
        found: dict[str, Any] = {"max_score": None, "hits": shown}
        if body.get("track_total_hits") is True:
            found["total"] = {"value": len(hits), "relation": "eq"}
        return {**whole(), "hits": found}


def whole() -> dict[str, Any]:
    """What an answer to a search says when nothing went wrong, without hits."""
    return {
        "took": 1,
        "timed_out": False,
        "_shards": {"total": 1, "successful": 1, "skipped": 0, "failed": 0},
        "status": 200,
    }


def _lines(body: bytes) -> list[bytes]:
    if not body.endswith(b"\n"):
        raise Problem(
            400,
            "illegal_argument_exception",
            "The bulk request must be terminated by a newline [\\n]",
        )
    return body[:-1].split(b"\n")


def _analysed(text: str) -> Iterator[str]:
    for word in text.split():
        units = word.encode("utf-16-le")
        for start in range(0, len(units), 510):  # the whitespace tokenizer cuts at 255 units
            yield units[start : start + 510].decode("utf-16-le", "replace")


def _filtered(value: Any, paths: list[list[str]]) -> Any:
    """Of the value what filter_path lets through; containers left empty are dropped."""
    if any(not path for path in paths):
        return value
    if isinstance(value, list):
        kept = [_filtered(item, paths) for item in value]
        return [item for item in kept if item is not None] or None
    if not isinstance(value, dict):
        return None
    result = {}
    for key, inner in value.items():
        left = (
            _filtered(inner, deeper)
            if (deeper := [path[1:] for path in paths if path[0] == key])
            else None
        )
        if left not in (None, [], {}):
            result[key] = left
    return result or None


class _Handler(BaseHTTPRequestHandler):
    disable_nagle_algorithm = (
        True  # an answer is written in parts: each would wait for the other side
    )
    protocol_version = "HTTP/1.1"
    double: ElasticDouble

    def _serve(self) -> None:
        double, parts = self.double, urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        double.requests.append((self.command, parts.path))
        told = double.before(self.command, parts.path)
        if told == CUT:
            self.close_connection = True
            return
        if isinstance(told, tuple):
            self._reply(*told)
            return
        status, answer = 200, None
        try:
            self._check(body)
            answer = double.do(self.command, parts.path, body)
        except Problem as problem:
            status, answer = problem.status, problem.answer()
        if told == CUT_AFTER:
            self.close_connection = True
            return
        wanted = parse_qs(parts.query).get("filter_path")
        if wanted:
            answer = _filtered(answer, [path.split(".") for path in wanted[0].split(",")]) or {}
        self._reply(status, {}, json.dumps(answer).encode())

    def _check(self, body: bytes) -> None:
        if self.double.credentials is not None:
            given = "Basic " + base64.b64encode(self.double.credentials.encode()).decode()
            if self.headers.get("Authorization") != given:
                raise Problem(
                    401, "security_exception", "missing or wrong authentication credentials"
                )
        if len(body) > self.double.max_body:
            raise Problem(413, "request_entity_too_large", "too large")
        kind = (
            "application/x-ndjson"
            if self.path.split("?")[0].endswith(("_bulk", "_msearch"))
            else "application/json"
        )
        if body and self.headers.get("Content-Type") != kind:
            raise Problem(
                406, "media_type_header_exception", "Content-Type header is not supported"
            )

    def _reply(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = _serve

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def serving() -> Iterator[ElasticDouble]:
    """Runs a double on a free port while the work inside goes on."""
    double = ElasticDouble()
    handler = type("Handler", (_Handler,), {"double": double})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        double.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield double
        finally:
            server.shutdown()
            thread.join()
