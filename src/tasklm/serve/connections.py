"""The limits of connections, and which one is closed to admit another."""

from __future__ import annotations

import ipaddress
import resource
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

MOST = 1000  # connections in all …
MOST_OF_ONE = MOST // 2  # … and of one address
RESERVE = 64  # further connections, which only get /health
OTHER_FILES = 256  # open files of a service: the model's, libraries', pipes


class Connection(Protocol):
    """A connection, reduced to what matters here."""

    address: str

    @property
    def waits(self) -> bool:
        """Whether it waits for a request, or for the rest of one."""

    def cut_off(self) -> None:
        """Closes it at once."""


class Place(Enum):
    """Where a new connection is admitted."""

    USUAL = auto()
    RESERVE = auto()  # it may ask for /health
    NOWHERE = auto()


@dataclass(frozen=True)
class Room:
    """The maximum number of simultaneous connections."""

    of_one: int = MOST_OF_ONE  # address
    in_all: int = MOST
    reserve: int = RESERVE


Group = dict[Connection, None]  # in the order in which they were accepted or answered


class Connections:
    """The connections of a service by address.

    When there are too many, the one that has waited longest for its request is closed: a client
    that opens many and sends little loses its own connections, and nobody else's.
    """

    def __init__(self, room: Room) -> None:
        self.room = room
        self._usual: dict[str, Group] = {}
        self._reserve: Group = {}
        self._count = 0  # of the usual ones

    def take(self, connection: Connection) -> Place:
        """Admits a connection and returns where."""
        own = self._usual.get(connection.address, {})
        if len(own) >= self.room.of_one:
            free = self._make_room([own])
        else:
            free = self._count < self.room.in_all or self._make_room(self._largest_first())
        if free:
            self._usual.setdefault(connection.address, {})[connection] = None
            self._count += 1
            return Place.USUAL
        if len(self._reserve) < self.room.reserve or self._make_room([self._reserve]):
            self._reserve[connection] = None
            return Place.RESERVE
        return Place.NOWHERE

    def answered(self, connection: Connection) -> None:
        """Records that a connection now waits for its next request."""
        own = self._usual.get(connection.address, {})
        if connection in own:
            del own[connection]
            own[connection] = None

    def lost(self, connection: Connection) -> None:
        """Forgets a connection."""
        self._reserve.pop(connection, None)
        own = self._usual.get(connection.address, {})
        if connection in own:
            del own[connection]
            self._count -= 1
        if not own:
            self._usual.pop(connection.address, None)

    def _largest_first(self) -> list[Group]:
        return sorted(self._usual.values(), key=len, reverse=True)

    def _make_room(self, groups: Iterable[Group]) -> bool:
        """Closes the longest-waiting connection of the first group that has one; False
        if none has.
        """
        for group in groups:
            waiting = next((connection for connection in group if connection.waits), None)
            if waiting is not None:
                self.lost(waiting)
                waiting.cut_off()
                return True
        return False


def group_of(address: str) -> str:
    """What counts as one address: for IPv6 the first half, because a machine owns all of the
    second.
    """
    try:
        number = ipaddress.ip_address(address)
    except ValueError:
        return address
    if number.version == 4:
        return address
    return str(ipaddress.IPv6Network((int(number) >> 64 << 64, 64)))


def room_for(of_one: int) -> Room:
    """The connection limits of this process, after raising its limit of open files as far as
    allowed.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = MOST + RESERVE + OTHER_FILES
    if hard != resource.RLIM_INFINITY:
        files = min(files, hard)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    in_all = max(1, min(MOST, files - RESERVE - OTHER_FILES))
    return Room(min(of_one, in_all), in_all)
