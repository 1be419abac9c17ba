"""A server that is busy, cut off or wrong: what passes is borne, the rest is said."""

from __future__ import annotations

import email.utils
import http.client
import itertools
import json
import time

import pytest

from tasklm.errors import RunError
from tasklm.select.elastic import client
from tasklm.select.elastic.client import PAUSES, ElasticServer
from tests.select.elastic_double import CUT, CUT_AFTER, serving, whole
from tests.select.test_elastic import asked, assert_same, double, pauses  # noqa: F401 - fixtures

PASSAGES = ["red apple", "green apple tree", "red wine", "blue sea", "sea of trees"]
QUERIES = ["apple tree", "red sea"]


@pytest.fixture
def store(make_store):
    return make_store(PASSAGES)


@pytest.fixture
def expected(make_store, tmp_path):
    """What a server without faults finds."""
    with serving() as faultless:
        return asked(faultless, make_store(PASSAGES), QUERIES, tmp_path / "faultless")


def busy(times, end, answer):
    """A fault for the first requests to paths with this end."""
    left = itertools.count(times, -1)
    return lambda method, path: answer if path.endswith(end) and next(left) > 0 else None


@pytest.mark.parametrize("end", ["_bulk", "_refresh", "_count", "_msearch", "_mapping"])
@pytest.mark.parametrize(
    "answer", [(503, {}, b"<html>"), (429, {}, b'{"error":"slow"}'), (502, {}, b""), CUT, CUT_AFTER]
)
def test_passing_trouble_is_borne(double, pauses, store, expected, tmp_path, end, answer):
    double.before = busy(3, end, answer)
    assert_same(expected, asked(double, store, QUERIES, tmp_path))
    assert pauses == list(PAUSES[:3])


def test_an_index_made_by_a_try_whose_answer_was_lost_is_used(
    double, pauses, store, expected, tmp_path
):
    left = itertools.count(1, -1)
    double.before = lambda method, path: (
        CUT_AFTER if method == "PUT" and path.count("/") == 1 and next(left) > 0 else None
    )
    assert_same(expected, asked(double, store, QUERIES, tmp_path))
    assert double.made == 1 and len(pauses) == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [((503, {}, b"{}"), "503 Service Unavailable"), (CUT, "closed connection|reset|Disconnected")],
)
def test_lasting_trouble_is_an_error_that_says_where(double, pauses, store, tmp_path, answer, said):
    double.before = busy(10**6, "_msearch", answer)
    with pytest.raises(
        RunError,
        match=(
            rf"^{double.url}: POST "
            rf"/tasklm-\w+/_msearch\S+ failed 9 times; the last time: .*({said})"
        ),
    ):
        asked(double, store, QUERIES, tmp_path)
    assert pauses == list(PAUSES)


def test_retry_after_is_honoured_within_bounds(double, pauses, store, expected, tmp_path):
    soon = email.utils.format_datetime(
        email.utils.localtime().fromtimestamp(time.time() + 100).astimezone()
    )
    answers = iter(
        [
            (429, {"Retry-After": "7"}, b"{}"),
            (503, {"Retry-After": "99999"}, b"{}"),
            (503, {"Retry-After": soon}, b"{}"),
        ]
    )
    double.before = lambda method, path: next(answers, None) if path.endswith("_msearch") else None
    assert_same(expected, asked(double, store, QUERIES, tmp_path))
    assert pauses[:2] == [7.0, 300.0] and 50 < pauses[2] <= 100


def test_refused_passages_are_sent_again_alone(double, pauses, store, expected, tmp_path):
    left = {"1": 2, "3": 1}
    seen = []

    def refuse(identity):
        seen.append(identity)
        if left.get(identity, 0):
            left[identity] -= 1
            return 429, "es_rejected_execution_exception", "queue is full"
        return None

    double.refuse = refuse
    assert_same(expected, asked(double, store, QUERIES, tmp_path))
    assert seen == ["0", "1", "2", "3", "4", "1", "3", "1"] and pauses == list(PAUSES[:2])


def test_a_passage_that_stays_refused_stops_the_run(double, pauses, store, tmp_path):
    double.refuse = lambda identity: (
        (400, "mapper_parsing_exception", "failed to parse") if identity == "2" else None
    )
    with pytest.raises(
        RunError,
        match=(
            r"passage 2 was not accepted into tasklm-\w+: "
            r"400 mapper_parsing_exception: failed to parse\. Run the"
        ),
    ):
        asked(double, store, QUERIES, tmp_path)
    assert pauses == []
    double.refuse = lambda identity: (
        (429, "es_rejected_execution_exception", "full") if identity == "2" else None
    )
    with pytest.raises(
        RunError, match=r"passage 2 .* 429 es_rejected_execution_exception: full, after 9 tries"
    ):
        asked(double, store, QUERIES, tmp_path)
    assert double.count("_msearch") == 0  # half an index is never searched


ERROR = {
    "error": {"type": "search_phase_execution_exception", "reason": "all shards failed"},
    "status": 503,
}
CUT_OFF = {**whole(), "timed_out": True}
HALF = {
    **whole(),
    "_shards": {
        "total": 2,
        "successful": 1,
        "failed": 1,
        "failures": [{"reason": {"type": "io", "reason": "disk"}}],
    },
}


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (ERROR, "503 search_phase_execution_exception: all shards failed"),
        (CUT_OFF, "the server's time limit stopped the search"),
        (HALF, "1 shards failed: io: disk"),
    ],
)
def test_a_search_without_its_whole_answer_is_no_answer(
    double, pauses, store, expected, tmp_path, bad, said
):
    def of_the_second(body):
        return bad if "sea" in json.dumps(body) else None

    left = itertools.count(2, -1)
    double.spoil = lambda body: of_the_second(body) if next(left) > 0 else None
    assert_same(expected, asked(double, store, QUERIES, tmp_path / "passing"))
    double.spoil = of_the_second
    with pytest.raises(
        RunError,
        match=(
            rf"^{double.url}: query 1 in tasklm-\w+ failed: "
            rf"{said}, after 9 tries\. Run the same command"
        ),
    ):
        asked(double, store, QUERIES, tmp_path / "lasting")


def test_an_error_of_the_query_itself_is_not_tried_again(double, pauses, store, tmp_path):
    double.max_clauses = 1
    with pytest.raises(
        RunError,
        match=(
            r"query 0 .* 400 too_many_clauses: "
            r"maxClauseCount is set to 1\. Raise indices\.query\.bool"
        ),
    ):
        asked(double, store, QUERIES, tmp_path)
    assert pauses == []


def test_a_limit_on_the_size_of_requests_is_named(double, pauses, store, tmp_path):
    asked(double, store, [], tmp_path)
    double.max_body = 10
    with pytest.raises(
        RunError, match=r"413 request_entity_too_large: too large\. Raise http\.max_content_length"
    ):
        asked(double, store, QUERIES, tmp_path)


def test_missing_items_in_an_answer_are_noticed(double, pauses, store, tmp_path):
    double.before = busy(1, "_bulk", (200, {}, b'{"errors":false}'))
    with pytest.raises(RunError, match=r"5 passages were sent to .* but 0 were acknowledged"):
        asked(double, store, QUERIES, tmp_path)
    double.before = busy(1, "_msearch", (200, {}, b"{}"))
    with pytest.raises(RunError, match="2 queries were sent but 0 answered"):
        asked(double, store, QUERIES, tmp_path)


def test_credentials_are_sent_and_never_said(double, pauses, store, expected, tmp_path):
    double.credentials = "me@home:p:ss/word"
    plain = double.url
    with pytest.raises(
        RunError, match=r"401 security_exception: .*Give select\.url a user"
    ) as refused:
        asked(double, store, QUERIES, tmp_path)
    double.url = plain.replace("http://", "http://me%40home:p%3Ass%2Fword@")
    assert_same(expected, asked(double, store, QUERIES, tmp_path))
    double.url = plain.replace("http://", "http://me%40home:wr0ng@")
    with pytest.raises(RunError) as wrong:
        asked(double, store, QUERIES, tmp_path)
    double.before = busy(10**6, "", (503, {}, b"{}"))
    with pytest.raises(RunError) as lasting:
        asked(double, store, QUERIES, tmp_path)
    for message in map(str, (refused.value, wrong.value, lasting.value)):
        assert (
            plain in message
            and "wr0ng" not in message
            and "me%40" not in message
            and "me@" not in message
        )
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"ss/word" not in kept and b"ss%2Fword" not in kept


def test_no_server_is_said_at_once(pauses, store, tmp_path):
    with serving() as gone:
        pass
    with pytest.raises(
        RunError, match=r"no server answers at http://127\.0\.0\.1:\d+ .*--select\.url"
    ):
        asked(gone, store, QUERIES, tmp_path)
    assert pauses == []


def test_another_kind_of_server_is_noticed(double, store, tmp_path):
    double.before = lambda method, path: (200, {}, b"<html>hello</html>")
    with pytest.raises(
        RunError,
        match=r"not a JSON object\. Check that select\.url is an Elasticsearch or OpenSearch server",
    ):
        asked(double, store, QUERIES, tmp_path)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:9200",
        "ftp://host",
        "http://",
        "http://host:port",
        "http://host:99999",
        "http://u:p@h/?q=1",
    ],
)
def test_addresses_that_are_none_are_refused(url):
    with pytest.raises(RunError, match=r"select\.url is not the address of a server") as error:
        ElasticServer(url)
    assert "u:p" not in str(error.value)


def test_addresses_with_a_path_https_and_ipv6():
    plain, secure = ElasticServer("http://[::1]:9201/search/"), ElasticServer("https://user@host")
    assert plain.shown == "http://[::1]:9201/search" and secure.shown == "https://host:9200"
    assert isinstance(secure._connection, http.client.HTTPSConnection)
    assert not isinstance(plain._connection, http.client.HTTPSConnection)


def test_words_of_the_server_are_passed_on():
    error = {
        "type": "a",
        "reason": "b",
        "root_cause": [{"type": "c", "reason": "d"}],
        "caused_by": {"type": "e", "reason": "f"},
    }
    assert client.reason_of({"error": error}) == "a: b; c: d; e: f"
    assert client.reason_of({"error": "plain"}) == "plain" and client.reason_of({}) == ""
