"""How many connections there may be, and which of them makes room for another."""

from __future__ import annotations

import ipaddress
import resource
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

MOST = 1000  # connections in all …
MOST_OF_ONE = MOST // 2  # … and of one address
RESERVE = 64  # connections above these, in which only /health is answered
OTHER_FILES = 256  # that a service has open: the model's, libraries', pipes


class Connection(Protocol):
    """A connection, as far as it matters here."""

    address: str

    @property
    def waits(self) -> bool:
        """Whether it waits for a request, or for the rest of one."""

    def cut_off(self) -> None:
        """Closes it at once."""


class Place(Enum):
    """Where a new connection is taken."""

    USUAL = auto()
    RESERVE = auto()  # it may ask for /health
    NOWHERE = auto()


@dataclass(frozen=True)
class Room:
    """The most connections that are taken at a time."""

    of_one: int = MOST_OF_ONE  # address
    in_all: int = MOST
    reserve: int = RESERVE


Group = dict[Connection, None]  # in the order in which they were taken, or answered


class Connections:
    """The connections of a service by address.

    Where there are too many, the one that has waited longest for its request is cut off: a client
    that opens many and sends little pushes out its own connections, and nobody else's.
    """

    def __init__(self, room: Room) -> None:
        self.room = room
        self._usual: dict[str, Group] = {}
        self._reserve: Group = {}
        self._count = 0  # of the usual ones

    def take(self, connection: Connection) -> Place:
        """Takes a connection, and says where."""
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
        """Notes that a connection waits for its next request from now on."""
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
        """Cuts off the longest waiting connection of the first group with one; False for none."""
        for group in groups:
            waiting = next((connection for connection in group if connection.waits), None)
            if waiting is not None:
                self.lost(waiting)
                waiting.cut_off()
                return True
        return False


def group_of(address: str) -> str:
    """What counts as one address: of IPv6 the first half, since a machine has all of the second."""
    try:
        number = ipaddress.ip_address(address)
    except ValueError:
        return address
    if number.version == 4:
        return address
    return str(ipaddress.IPv6Network((int(number) >> 64 << 64, 64)))


def room_for(of_one: int) -> Room:
    """The room of this process, once it may open the files it needs, or as many as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = MOST + RESERVE + OTHER_FILES
    if hard != resource.RLIM_INFINITY:
        files = min(files, hard)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    in_all = max(1, min(MOST, files - RESERVE - OTHER_FILES))
    return Room(min(of_one, in_all), in_all)
