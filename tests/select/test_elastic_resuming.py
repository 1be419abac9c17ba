"""Indexing and search that were stopped go on from what was noted, where that still fits the
server.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tasklm.errors import RunError
from tasklm.select.elastic import index, saved_hits, selector
from tests.select.test_elastic import asked, assert_same, double, with_words  # noqa: F401 - fixtures
from tests.select.test_elastic_failures import PASSAGES, QUERIES, expected, store  # noqa: F401 - fixtures


class Stop(Exception):
    """Stands for whatever ends the process."""


def stop_after(monkeypatch, module, name, times):
    """Lets the module's function work `times` times and then ends the process."""
    left, real = itertools.count(times, -1), getattr(module, name)

    def stopping(*arguments):
        if next(left) <= 0:
            raise Stop
        return real(*arguments)

    monkeypatch.setattr(module, name, stopping)


@pytest.mark.parametrize("after", [0, 1, 3])
def test_indexing_goes_on_where_it_stopped(double, store, expected, tmp_path, monkeypatch, after):
    monkeypatch.setattr(index, "_BATCH_BYTES", 1)  # a passage per request
    with monkeypatch.context() as patch:
        stop_after(patch, index, "_send", after)
        with pytest.raises(Stop):
            asked(double, store, QUERIES, tmp_path)
    assert double.count("_bulk") == after and double.count("_msearch") == 0
    assert_same(expected, asked(double, store, QUERIES, tmp_path))
    assert double.count("_bulk") == len(PASSAGES)


def test_a_stop_between_sending_and_noting_sends_twice_and_changes_nothing(
    double, store, expected, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        stop_after(patch, index, "write_record", 0)
        with pytest.raises(Stop):
            asked(double, store, QUERIES, tmp_path)
    assert_same(expected, asked(double, store, QUERIES, tmp_path))
    (held,) = double.indexes.values()
    assert double.count("_bulk") == 2 and len(held.documents) == len(PASSAGES)


def test_notes_about_an_index_that_was_deleted_are_not_believed(
    double, store, expected, tmp_path, monkeypatch
):
    monkeypatch.setattr(index, "_BATCH_BYTES", 1)
    with monkeypatch.context() as patch:
        stop_after(patch, index, "_send", 3)
        with pytest.raises(Stop):
            asked(double, store, QUERIES, tmp_path)
    double.indexes.clear()
    assert_same(expected, asked(double, store, QUERIES, tmp_path))


def test_passages_that_the_server_lost_are_sent_again(
    double, store, expected, tmp_path, monkeypatch
):
    monkeypatch.setattr(index, "_BATCH_BYTES", 1)
    with monkeypatch.context() as patch:
        stop_after(patch, index, "_send", 3)
        with pytest.raises(Stop):
            asked(double, store, QUERIES, tmp_path)
    (held,) = double.indexes.values()
    del held.documents["1"]
    with pytest.raises(
        RunError,
        match=r"5 passages were sent to tasklm-\w+, but it has 4\. Run the same command again",
    ):
        asked(double, store, QUERIES, tmp_path)
    assert_same(expected, asked(double, store, QUERIES, tmp_path))


def test_a_finished_index_that_lost_passages_is_not_searched(double, store, tmp_path):
    asked(double, store, QUERIES, tmp_path / "first")
    (held,) = double.indexes.values()
    del held.visible["0"]
    with pytest.raises(
        RunError, match=r"has 4 passages, but the corpus has 5\. Delete the index on the server"
    ):
        asked(double, store, QUERIES, tmp_path / "second")


@pytest.mark.parametrize("after", [0, 1, 4])
def test_search_goes_on_where_it_stopped(
    double, make_store, make_texts, tmp_path, monkeypatch, after
):
    passages, queries = with_words(make_texts(80, seed=1)), with_words(make_texts(9, seed=2))
    expected = asked(double, make_store(passages), queries, tmp_path / "whole")
    monkeypatch.setattr(selector, "_QUERIES_AT_ONCE", 1)
    before = double.count("_msearch")
    with monkeypatch.context() as patch:
        # the batch is in the files but not noted: cut off and asked again
        stop_after(patch, saved_hits, "write_record", after)
        with pytest.raises(Stop):
            asked(double, make_store(passages), queries, tmp_path)
    assert double.count("_msearch") == before + after + 1
    assert_same(expected, asked(double, make_store(passages), queries, tmp_path))
    assert double.count("_msearch") == before + len(queries) + 1
    assert_same(expected, asked(double, make_store(passages), queries, tmp_path))
    assert double.count("_msearch") == before + len(queries) + 1  # all of it was kept


def test_what_was_kept_serves_only_the_same_question(double, store, tmp_path):
    first = asked(double, store, QUERIES, tmp_path, 2)
    again = asked(double, store, QUERIES, tmp_path / "again", 2)
    banned = np.zeros(5, bool)
    banned[first.passages[0]] = True
    for changed in ({"banned": banned}, {"k": 1}, {"queries": QUERIES[::-1]}):
        arguments = {"queries": QUERIES, "k": 2, **changed}
        fresh = tmp_path / f"fresh-{next(iter(changed))}"
        found = asked(double, store, folder=tmp_path, **arguments)
        assert_same(asked(double, store, folder=fresh, **arguments), found)
        assert found.passages.tolist() != again.passages.tolist()
    assert_same(
        again, first
    )  # what was handed out does not change with the files of a later search


@pytest.mark.parametrize("name", ["counts.bin", "passages.bin", "scores.bin", "done.json"])
@pytest.mark.parametrize("harm", ["flipped", "empty", "gone"])
def test_a_search_whose_files_are_damaged_is_asked_again(double, store, tmp_path, name, harm):
    before = asked(double, store, QUERIES, tmp_path)
    requests, path = double.count("_msearch"), tmp_path / "elastic-search" / name
    content = path.read_bytes()
    path.unlink()
    if harm != "gone":
        path.write_bytes(
            content[:3] + bytes([content[3] ^ 0x40]) + content[4:] if harm == "flipped" else b""
        )
    assert_same(before, asked(double, store, QUERIES, tmp_path))
    assert double.count("_msearch") > requests
