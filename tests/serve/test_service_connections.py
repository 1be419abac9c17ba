"""Many connections: who makes room for whom, and that a slow client shuts nobody out."""

from __future__ import annotations

import json
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from tasklm.serve import connections as counting
from tasklm.serve import server as serving
from tasklm.serve.connections import Connections, Place, Room, group_of, room_for
from tests.serve.running import Holding, Inside, read_response, request_of, serving_inside

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
SLOW = [
    b"POST /predict HTTP/1.1\r\nHost: localhost\r\nX-",
    (
        b"POST /predict HTTP/1.1\r\nHost: "
        b"localhost\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n{"
    ),
]


@dataclass(eq=False)
class Stand:
    """Stands for a connection."""

    address: str
    waits: bool = True
    cut: bool = False

    def cut_off(self) -> None:
        self.cut = True


@pytest.fixture
def predictor(classifier: Path) -> Holding:
    return Holding(classifier)


@pytest.fixture
def all_connections() -> Connections:
    return Connections(Room(of_one=3, in_all=5, reserve=2))


def taken(
    all_connections: Connections, address: str, count: int, waits: bool = True
) -> list[Stand]:
    """Takes some connections, all of which must find their place."""
    stands = [Stand(address, waits) for _ in range(count)]
    assert [all_connections.take(stand) for stand in stands] == [Place.USUAL] * count
    return stands


def test_the_longest_waiting_connection_of_an_address_makes_room_for_its_next(
    all_connections: Connections,
) -> None:
    other, own = taken(all_connections, "b", 2), taken(all_connections, "a", 3)
    all_connections.answered(own[0])  # has waited least now
    taken(all_connections, "a", 2)
    assert [stand.cut for stand in own] == [False, True, True] and not any(
        stand.cut for stand in other
    )


def test_the_address_with_the_most_connections_makes_room_for_another(
    all_connections: Connections,
) -> None:
    many, few = taken(all_connections, "a", 3), taken(all_connections, "b", 2)
    taken(all_connections, "c", 1)
    assert [stand.cut for stand in [*many, *few]] == [True, False, False, False, False]


def test_connections_that_are_answered_are_never_cut_off(all_connections: Connections) -> None:
    busy, idle = taken(all_connections, "a", 3, waits=False), taken(all_connections, "b", 2)
    assert all_connections.take(Stand("a")) is Place.RESERVE
    taken(all_connections, "c", 1)  # the largest group has nobody who waits: the next one has
    assert not any(stand.cut for stand in busy) and [stand.cut for stand in idle] == [True, False]


def test_the_reserve_has_an_end_too(all_connections: Connections) -> None:
    taken(all_connections, "a", 3, waits=False)
    first, second, third = Stand("a"), Stand("a", waits=False), Stand("a", waits=False)
    assert [all_connections.take(stand) for stand in (first, second, third)] == [Place.RESERVE] * 3
    assert first.cut and not second.cut
    assert all_connections.take(Stand("a")) is Place.NOWHERE
    all_connections.lost(second)
    assert all_connections.take(Stand("a")) is Place.RESERVE


def test_lost_connections_leave_room_and_no_trace(all_connections: Connections) -> None:
    for _ in range(3):
        stands = [
            *taken(all_connections, "a", 3),
            *taken(all_connections, "b", 2),
            *taken(all_connections, "c", 1),
        ]
        for stand in [*stands, *stands]:  # one that was cut off is lost a second time
            all_connections.lost(stand)
    assert not all_connections._usual and all_connections._count == 0


def test_an_address_of_ipv6_stands_for_all_that_its_machine_has() -> None:
    assert (
        group_of("2001:db8:0:1:2::3")
        == group_of("2001:db8:0:1:ffff::")
        != group_of("2001:db8:0:2::3")
    )
    assert [group_of(address) for address in ("127.0.0.1", "", "testclient")] == [
        "127.0.0.1",
        "",
        "testclient",
    ]


INFINITE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("limits", "raised", "in_all"),
    [
        ((1024, 500_000), 1320, 1000),
        ((20_000, 20_000), None, 1000),
        ((INFINITE, INFINITE), None, 1000),
        ((1024, INFINITE), 1320, 1000),
        ((256, 1024), 1024, 704),
        ((100, 100), None, 1),
    ],
)
def test_few_files_leave_room_for_fewer_connections(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], raised: int | None, in_all: int
) -> None:
    changes: list[Any] = []
    monkeypatch.setattr(counting.resource, "getrlimit", lambda kind: limits)
    monkeypatch.setattr(counting.resource, "setrlimit", lambda kind, values: changes.append(values))
    room = room_for(500)
    assert (room.in_all, room.of_one) == (in_all, min(500, in_all))
    assert changes == ([] if raised is None else [(raised, limits[1])])


@contextmanager
def connected(service: Inside) -> Iterator[tuple[socket.socket, Any]]:
    """A connection, and what is read from it as a file."""
    with (
        socket.create_connection(service.address, 60) as connection,
        connection.makefile("rb") as file,
    ):
        yield connection, file


def ask(
    address: tuple[str, int], request: bytes, source: str = "127.0.0.1"
) -> tuple[int, dict[str, str], bytes]:
    """The answer to a request on a new connection from some address of this machine."""
    with (
        socket.create_connection(address, 60, (source, 0)) as connection,
        connection.makefile("rb") as file,
    ):
        connection.sendall(request)
        return read_response(file)


@pytest.mark.parametrize(
    "of_one", [100, 150], ids=["the room of an address is full", "all room is full"]
)
def test_hundreds_of_slow_connections_shut_nobody_out(predictor: Holding, of_one: int) -> None:
    predictor.go.set()
    with (
        serving_inside(predictor, Room(of_one, in_all=150, reserve=8)) as service,
        ExitStack() as held,
    ):
        for number in range(400):
            connection = held.enter_context(socket.create_connection(service.address, 60))
            connection.sendall(SLOW[number % len(SLOW)])
            if number % 50 == 49:
                for source in ("127.0.0.1", "127.0.0.2"):
                    assert ask(service.address, HEALTH, source)[0] == 200
                    status, _, body = ask(service.address, request_of(["a text"]), source)
                    assert status == 200 and len(json.loads(body)["answers"]) == 1


@contextmanager
def held_requests(predictor: Holding, room: Room, count: int) -> Iterator[Inside]:
    """A service that is computing the requests of some connections, which are
    answered at the end.
    """
    predictor.go.clear()
    with serving_inside(predictor, room) as service, ThreadPoolExecutor(count) as pool:
        asked = [
            pool.submit(ask, service.address, request_of([f"text {number}"]))
            for number in range(count)
        ]
        try:
            wait_until(lambda: len(service.server.server_state.tasks) == count)
            yield service
        finally:
            predictor.go.set()
        assert [one.result(20)[0] for one in asked] == [200] * count


def wait_until(holds: Callable[[], bool]) -> None:
    """Waits for what must come."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def test_an_address_with_too_many_requests_is_told_and_may_ask_for_health(
    predictor: Holding,
) -> None:
    with held_requests(predictor, Room(of_one=2, in_all=10, reserve=4), 2) as service:
        for _ in range(6):  # none is left over in the reserve
            status, headers, body = ask(service.address, request_of(["a text"]))
            assert (
                status == 503
                and headers["connection"] == "close"
                and int(headers["retry-after"]) >= 1
            )
            assert "Too many connections" in json.loads(body)["detail"]
            status, headers, _ = ask(service.address, HEALTH)
            assert status == 200 and headers["connection"] == "close"
        status, headers, _ = ask(service.address, HEALTH, "127.0.0.2")
        assert status == 200 and "connection" not in headers  # another address has room


def test_without_any_room_connections_are_closed_at_once(predictor: Holding) -> None:
    with (
        held_requests(predictor, Room(of_one=1, in_all=1, reserve=0), 1) as service,
        connected(service) as (connection, _),
    ):
        assert connection.recv(1) == b""


def test_a_client_that_does_not_read_is_cut_off(
    predictor: Holding, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor.go.set()
    monkeypatch.setattr(serving, "READ_SECONDS", 0.2)
    with serving_inside(predictor) as service, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(service.address)
        connection.settimeout(60)
        connection.sendall(
            b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2000
        )  # answers that fit in no buffer
        wait_until(lambda: service.server.server_state.total_requests > 10)
        wait_until(lambda: not service.server.server_state.connections)
        assert ask(service.address, HEALTH)[0] == 200


def stop(service: Inside) -> None:
    """Tells a service to end, and waits until it reads nothing more but what was sent."""
    service.server.should_exit = True
    with pytest.raises(OSError):
        while True:
            socket.create_connection(service.address, 60).close()
            time.sleep(0.01)


def test_a_connection_that_was_not_accepted_when_the_service_was_told_to_end_is_answered(
    predictor: Holding,
) -> None:
    predictor.go.set()
    with serving_inside(predictor) as service:
        assert ask(service.address, HEALTH)[0] == 200
        busy = threading.Event()
        for step in (
            lambda: service.loop.remove_reader(service.listener.fileno()),
            busy.set,
        ):  # as if it had no time to accept
            service.loop.call_soon_threadsafe(step)
        assert busy.wait(20)
        with connected(service) as (connection, file):
            connection.sendall(request_of(["a text"]))
            service.server.should_exit = True
            status, headers, _ = read_response(file)
            assert status == 200 and headers["connection"] == "close"


@pytest.mark.parametrize("unsent", [-5, 30], ids=["the rest of a body", "the rest of headers"])
def test_what_was_half_sent_when_the_service_was_told_to_end_is_answered(
    predictor: Holding, unsent: int
) -> None:
    predictor.go.set()
    request = request_of(["a text"])
    with serving_inside(predictor) as service, connected(service) as (connection, file):
        connection.sendall(request[:unsent])
        wait_until(lambda: len(service.server.server_state.connections) == 1)
        stop(service)
        time.sleep(3 * serving.SETTLED)  # idle connections are closed meanwhile
        connection.sendall(request[unsent:])
        status, headers, _ = read_response(file)
        assert status == 200 and headers["connection"] == "close"


def test_what_was_sent_but_not_read_when_connections_are_closed_is_answered(
    predictor: Holding,
) -> None:
    predictor.go.set()
    with serving_inside(predictor) as service, connected(service) as (connection, file):
        connection.sendall(HEALTH)
        assert read_response(file)[0] == 200
        (protocol,) = service.server.server_state.connections
        paused = threading.Event()
        for step in (protocol.transport.pause_reading, paused.set):
            service.loop.call_soon_threadsafe(step)
        assert paused.wait(20)
        connection.sendall(request_of(["a text"]))
        for step in (protocol.shutdown, protocol.transport.resume_reading):
            service.loop.call_soon_threadsafe(step)
        assert read_response(file)[0] == 200
        service.loop.call_soon_threadsafe(protocol.shutdown)  # an idle one is closed
        assert file.read(1) == b""
