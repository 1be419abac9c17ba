"""Calls to other machines are noticed, counted by host, and told apart from those to this one."""

from __future__ import annotations

import contextlib
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from tasklm.bill import network
from tasklm.bill.network import RECORD, Watched, host_of, sessions_in, summary


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched.begin(tmp_path)


def test_calls_are_counted_by_host_and_kept(watched: Watched) -> None:
    no_route = contextlib.suppress(OSError)
    with socket.socket(type=socket.SOCK_DGRAM) as any_socket, no_route:
        any_socket.connect(("192.0.2.1", 9))  # sends nothing
    for _ in range(2):
        sys.audit("socket.getaddrinfo", "control.invalid", 443, 0, 0, 0)
    sys.audit("socket.gethostbyname", b"bytes.invalid")
    with socket.create_server(("127.0.0.1", 0)) as one:
        socket.create_connection(one.getsockname()).close()
    watched.keep(ended=True)
    (session,) = sessions_in(watched.folder)
    assert session["calls"] == {"192.0.2.1:9": 1, "bytes.invalid": 1, "control.invalid:443": 2}
    assert session["this_machine"] >= 1 and session["ended"]


def test_only_calls_since_the_beginning_count(watched: Watched, tmp_path: Path) -> None:
    sys.audit("socket.connect", None, ("192.0.2.7", 80))
    assert Watched.begin(tmp_path / "other").session(False)["calls"] == {}
    assert watched.session(False)["calls"] == {"192.0.2.7:80": 1}


def test_a_process_that_is_cut_off_stays_on_record(watched: Watched) -> None:
    sys.audit("socket.sendto", None, ("2001:db8::1", 53, 0, 0))
    watched.keep()
    again = Watched.begin(watched.folder)  # the next process
    again.keep(ended=True)
    sessions = sessions_in(watched.folder)
    assert [(one["calls"], one["ended"]) for one in sessions] == [
        ({"2001:db8::1:53": 1}, False),
        ({}, True),
    ]
    told = summary(sessions, [], 1)
    assert told["statement"] == "network calls were seen, to 2001:db8::1:53"
    assert (told["processes"], told["of_them_cut_off"]) == (2, 1)


def test_nothing_is_claimed_where_the_record_is_damaged(watched: Watched) -> None:
    assert summary(sessions_in(watched.folder), [], 1)["statement"] == "no network call was seen"
    path = watched.folder / RECORD
    path.write_text(path.read_text(encoding="utf-8").replace("false", "true"), encoding="utf-8")
    unknown = "it is not known whether there was a network call: its record is damaged"
    for harm in (path.read_text(encoding="utf-8"), "{", '{"other": 1}'):
        path.write_text(harm, encoding="utf-8")
        assert summary(sessions_in(watched.folder), [], 1)["statement"] == unknown
    assert summary([], [], 1)["statement"] == unknown


@pytest.mark.parametrize(
    ("event", "arguments", "host"),
    [
        ("socket.connect", (None, ("127.0.0.5", 80)), ""),
        ("socket.connect", (None, ("::1", 80, 0, 0)), ""),
        ("socket.connect", (None, "/run/user/socket"), ""),
        ("socket.connect", (None, ("fe80::1%eth0", 80, 0, 2)), "fe80::1%eth0:80"),
        ("socket.connect", (None, ("example.org", 80)), "example.org:80"),
        ("socket.sendmsg", (None, None), ""),
        ("socket.sendto", (None, ("0.0.0.0", 9)), ""),
        ("socket.getaddrinfo", ("localhost", 80, 0, 0, 0), ""),
        ("socket.getaddrinfo", (None, 80, 0, 0, 0), ""),
        ("socket.getaddrinfo", ("example.org", None, 0, 0, 0), "example.org"),
        ("socket.getaddrinfo", (b"example.org", "https", 0, 0, 0), "example.org:https"),
        ("socket.gethostbyaddr", ("192.0.2.1",), "192.0.2.1"),
    ],
)
def test_hosts_are_those_of_the_events(event: str, arguments: tuple[Any, ...], host: str) -> None:
    assert host_of(event, arguments) == host


def test_hosts_beyond_the_limit_are_counted_together(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "MOST_HOSTS", len(network._calls) + 1)
    for number in range(5):
        sys.audit("socket.connect", None, (f"198.51.100.{number}", 1))
    calls = watched.session(False)["calls"]
    assert calls == {"198.51.100.0:1": 1, network.OTHERS: 4}


def test_an_idle_process_is_counted_only_if_it_called_somebody(watched: Watched) -> None:
    watched.keep(ended=True)
    again = Watched.begin(watched.folder)
    assert len(sessions_in(watched.folder)) == 2  # until it has ended
    again.keep(ended=True, idle=True)
    assert len(sessions_in(watched.folder)) == 1
    sys.audit("socket.connect", None, ("192.0.2.1", 80))
    again.keep(ended=True, idle=True)
    assert sessions_in(watched.folder)[-1]["calls"] == {"192.0.2.1:80": 1}
