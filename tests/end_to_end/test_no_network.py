"""tasklm reaches nobody and leaves nothing behind: fit, predict, explain, export and serve where no
network exists.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tasklm.bill.network import sessions_in
from tests.end_to_end.network_calls import calls_in_trace, network_calls, ways
from tests.serve.models import need_onnx

pytest.importorskip("fastapi")

WAYS = ways()
LEFT_BEHIND = {".cache/matplotlib"}  # its list of the machine's fonts
LOOK_UP = (
    "import socket\ntry:\n    socket.getaddrinfo('control.invalid', 443)\nexcept OSError:\n    pass"
)
SEND = (
    "import socket\ntry:\n    "
    "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', "
    "('192.0.2.1', 9))\nexcept OSError:\n    pass"
)
CONNECT = (
    "import socket\ntry:\n    "
    "socket.create_connection(('ADDRESS', 9), 1)\nexcept OSError:\n    pass"
)
HERE = (
    "import socket\nwith socket.create_server(('127.0.0.1', "
    "0)) as one:\n    socket.create_connection(one.getsockname()).close()"
)


def new_user(folder: Path) -> dict[str, str]:
    """The environment of a user whose home and temporary folders are empty."""
    for name in ("home", "tmp"):
        (folder / name).mkdir(parents=True)
    named = (
        "XDG_",
        "MPL",
        "NUMBA_CACHE",
        "HF_",
        "ORT_",
    )  # whatever moves caches, or switches something off
    environment = {name: value for name, value in os.environ.items() if not name.startswith(named)}
    return environment | {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp")}


REACHING_OUT = pytest.mark.parametrize(
    "program",
    [
        LOOK_UP,
        SEND,
        CONNECT.replace("ADDRESS", "192.0.2.1"),
        CONNECT.replace("ADDRESS", "2001:db8::1"),
    ],
    ids=["a look-up", "a datagram", "IPv4", "IPv6"],
)


@pytest.mark.parametrize("way", WAYS)
@REACHING_OUT
def test_what_reaches_out_is_noticed(way: str, program: str) -> None:
    child = (
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {program!r}], check=True)"
    )
    assert network_calls(way, [sys.executable, "-c", program], os.environ)
    assert network_calls(way, [sys.executable, "-c", child], os.environ)


@pytest.mark.parametrize("way", WAYS)
def test_what_stays_on_this_machine_is_not_a_network_call(way: str) -> None:
    assert network_calls(way, [sys.executable, "-c", HERE], os.environ) == []


def seen_by_the_bill(way: str, program: str, folder: Path) -> tuple[list[str], dict[str, int]]:
    """The network calls of a program by the kernel, and as the bill of a run counts them."""
    before = "import sys\nfrom pathlib import Path\nfrom tasklm.bill.network import Watched\n"
    watched = f"watched = Watched.begin(Path({str(folder)!r}))\n{program}\nwatched.keep(ended=True)"
    outside = network_calls(way, [sys.executable, "-c", before + watched], os.environ)
    (session,) = sessions_in(folder)
    return outside, session["calls"]


@pytest.mark.parametrize("way", WAYS)
@REACHING_OUT
def test_the_bill_has_what_reaches_out(way: str, program: str, tmp_path: Path) -> None:
    outside, counted = seen_by_the_bill(way, program, tmp_path)
    assert outside and counted


@pytest.mark.parametrize("way", WAYS)
def test_the_bill_has_no_call_where_there_is_none(way: str, tmp_path: Path) -> None:
    assert seen_by_the_bill(way, HERE, tmp_path) == ([], {})


def test_lines_of_a_trace_are_told_apart() -> None:
    here = (
        "7 connect(3, {sa_family=AF_INET, "
        'sin_port=htons(8000), sin_addr=inet_addr("127.0.0.1")}, 16) = 0'
    )
    users = '7 connect(3, {sa_family=AF_UNIX, sun_path="/var/run/nscd/socket"}, 110) = -1 ENOENT'
    names = (
        "7 connect(3, {sa_family=AF_INET, "
        'sin_port=htons(53), sin_addr=inet_addr("127.0.0.53")}, 16) = 0'
    )
    daemon = (
        "7 connect(3, {sa_family=AF_UNIX, "
        'sun_path="/run/systemd/resolve/io.systemd.Resolve"}, 42) = 0'
    )
    six = (
        '7 sendto(3, "x", 1, 0, {sa_family=AF_INET6, '
        'sin6_port=htons(9), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, "2001:db8::1", …'
    )
    assert calls_in_trace("\n".join([here, users, names, daemon, six])) == [names, daemon, six]


def test_from_files_to_a_service_nobody_is_reached_and_nothing_is_left_behind(
    files: Path, tmp_path: Path
) -> None:
    need_onnx()
    if not WAYS:
        pytest.skip("neither unshare --net nor strace works here: NETWORK CALLS ARE NOT LOOKED FOR")
    environment = new_user(tmp_path / "user")
    command = [
        sys.executable,
        "-m",
        "tests.end_to_end.offline_flow",
        str(files),
        str(tmp_path / "out"),
    ]
    assert network_calls(WAYS[0], command, environment) == []
    home, scratch = tmp_path / "user" / "home", tmp_path / "user" / "tmp"
    left = {str(path.parent.relative_to(home)) for path in home.rglob("*") if path.is_file()}
    assert left <= LEFT_BEHIND
    assert [path for path in scratch.rglob("*") if path.is_file()] == []
    assert (tmp_path / "out" / "onnx-int8" / "model.onnx").is_file()
