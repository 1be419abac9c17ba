"""Which hosts a process tries to reach, as Python's own audit events tell it.

An audit hook sees every call of Python's socket module, whoever makes it, before it happens. It
does not see native code, such as the gradients that several processes exchange, nor other
processes. What a run saw is kept in its folder, a record for each process that worked on it.
"""

from __future__ import annotations

import ipaddress
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasklm.errors import DamagedError
from tasklm.storage.files import read_json, write_record

RECORD = "network.json"
EVENTS = (
    "socket.connect",
    "socket.sendto",
    "socket.sendmsg",
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "socket.gethostbyaddr",
)
HOW = f"an audit hook of Python on {', '.join(EVENTS)}, in the process that trains"
LIMITS = (
    "calls of native code, and of other processes: those that help to split a corpus, a cluster's, "
    "and further ones of torchrun"
)
MOST_HOSTS = 1000  # that are told apart
OTHERS = "others"

_calls: Counter[str] = Counter()  # of this process, by host; "" for this machine
_installed = threading.Lock()


def install() -> None:
    """Begins to count; the hook stays until the process ends."""
    if _installed.acquire(blocking=False):
        sys.addaudithook(_hear)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in EVENTS:
        return
    host = host_of(event, arguments)
    if host not in _calls and len(_calls) >= MOST_HOSTS:
        host = OTHERS
    _calls[host] += 1


def host_of(event: str, arguments: tuple[Any, ...]) -> str:
    """The host that a call is for, with its port where it has one; "" for this machine."""
    address = arguments[1] if event in EVENTS[:3] else arguments[:2]
    if not isinstance(address, tuple) or not address:
        return ""  # a socket file, or a socket that is connected already
    if event in EVENTS[4:]:
        address = address[:1]
    host = address[0]
    if isinstance(host, bytes):
        host = host.decode("utf-8", "replace")
    if not isinstance(host, str) or is_here(host):
        return ""
    return ":".join([host, *(str(port) for port in address[1:2] if port not in (None, 0))])


def is_here(host: str) -> bool:
    """Whether a host is this machine."""
    if host in ("", "localhost", "ip6-localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


@dataclass
class Watched:
    """What this process has tried to reach since it began to work on a run."""

    folder: Path
    before: Counter[str] = field(default_factory=Counter)
    earlier: list[dict[str, Any]] = field(default_factory=list)  # other processes

    @classmethod
    def begin(cls, folder: Path) -> Watched:
        """Counts from now on, and says so in the folder."""
        install()
        watched = cls(folder, _calls.copy(), sessions_in(folder))
        watched.keep(ended=False)
        return watched

    def keep(self, ended: bool = False, idle: bool = False) -> None:
        """Writes what was seen so far; nothing of a process that was `idle` and called nobody."""
        sessions = [*self.earlier, self.session(ended)]
        if idle and not any(sessions[-1][kind] for kind in ("calls", "this_machine")):
            sessions = self.earlier
        write_record(self.folder / RECORD, {"sessions": sessions})

    def session(self, ended: bool) -> dict[str, Any]:
        """What was seen: calls by host, and how many were to this machine."""
        seen = _calls - self.before
        here = seen.pop("", 0)
        return {"calls": dict(sorted(seen.items())), "this_machine": here, "ended": ended}


def sessions_in(folder: Path) -> list[dict[str, Any]]:
    """What the processes that worked on a run saw; a damaged record says that it is."""
    path = folder / RECORD
    if not path.exists():
        return []
    try:
        sessions: list[dict[str, Any]] = read_json(path)["sessions"]
    except (DamagedError, KeyError, TypeError):
        return [{"calls": {}, "this_machine": 0, "ended": False, "damaged": True}]
    return sessions


def summary(sessions: list[dict[str, Any]], named: list[str], processes: int) -> dict[str, Any]:
    """What a bill says of the network; `named`: the hosts that the recipe names."""
    calls: Counter[str] = Counter()
    for session in sessions:
        calls.update(session["calls"])
    unfinished = sum(not session["ended"] for session in sessions)
    damaged = any(session.get("damaged") for session in sessions)
    statement = "no network call was seen"
    if calls:
        statement = f"network calls were seen, to {', '.join(sorted(calls))}"
    elif damaged or not sessions:
        statement = "it is not known whether there was a network call: its record is damaged"
    return {
        "statement": statement,
        "how": HOW,
        "not_seen": LIMITS,
        "processes": len(sessions),
        "of_them_cut_off": unfinished,
        "training_processes": processes,
        "calls": dict(sorted(calls.items())),
        "named_by_the_recipe": named,
    }
