"""What a command, and all that it starts, tries to reach beyond this machine: counted where no
network exists, or traced.

`python -m tests.end_to_end.network_calls COMMAND …` runs a command in a network namespace that it
is the first process of.
"""

from __future__ import annotations

import fcntl
import ipaddress
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SET_FLAGS, UP = 0x8914, 0x1  # SIOCSIFFLAGS and IFF_UP of linux/sockios.h and linux/if.h
# A namespace with nothing but a loopback interface has no route to anywhere, and look-ups are UDP.
COUNTS = (
    "IpOutNoRoutes",
    "Ip6OutNoRoutes",
    "UdpOutDatagrams",
    "UdpNoPorts",
    "Udp6OutDatagrams",
    "Udp6NoPorts",
)
TRACED = "trace=connect,sendto,sendmsg,sendmmsg"
ADDRESS = re.compile(r'sin6?_port=htons\((\d+)\).*?inet_(?:addr\(|pton\(AF_INET6, )"([^"]+)"')
RESOLVER = re.compile(
    r'sun_path="([^"]*resolve[^"]*)"'
)  # systemd's, which looks names up for others
LOOK_UP = 53


def ways() -> list[str]:
    """The ways to notice network calls that work on this machine; the best first."""
    tried = {
        "namespace": ["unshare", "--map-root-user", "--net", "true"],
        "strace": ["strace", "-f", "--seccomp-bpf", "-e", TRACED, "-o", os.devnull, "true"],
    }
    return [way for way, words in tried.items() if shutil.which(words[0]) and _works(words)]


def _works(words: Sequence[str]) -> bool:
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def network_calls(way: str, command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Runs a command, which must succeed, and returns its network calls but for those to this
    machine.
    """
    with tempfile.TemporaryDirectory() as folder:
        noted = Path(folder) / "calls"
        if way == "namespace":
            words = [
                "unshare",
                "--map-root-user",
                "--net",
                sys.executable,
                "-m",
                __name__,
                str(noted),
                *command,
            ]
        else:
            words = ["strace", "-f", "--seccomp-bpf", "-e", TRACED, "-o", str(noted), *command]
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        done = subprocess.run(
            words,
            env={**environment, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        text = noted.read_text(encoding="utf-8")
    return json.loads(text) if way == "namespace" else calls_in_trace(text)


def calls_in_trace(trace: str) -> list[str]:
    """The lines of a system-call trace that go beyond this machine, or ask a resolver."""
    calls = []
    for line in trace.splitlines():
        address = ADDRESS.search(line)
        outside = address and (int(address[1]) == LOOK_UP or not _is_here(address[2]))
        if outside or RESOLVER.search(line):
            calls.append(line)
    return calls


def _is_here(address: str) -> bool:
    number = ipaddress.ip_address(address)
    return number.is_loopback or number.is_unspecified


def _counts() -> dict[str, int]:
    """What the kernel has counted in this network namespace."""
    counts = {}
    lines = Path("/proc/self/net/snmp").read_text(encoding="ascii").splitlines()
    for names, values in zip(lines[::2], lines[1::2], strict=True):
        kind = names.partition(":")[0]
        counts |= {
            kind + name: int(value)
            for name, value in zip(names.split()[1:], values.split()[1:], strict=True)
        }
    six = Path("/proc/self/net/snmp6")
    lines = six.read_text(encoding="ascii").splitlines() if six.exists() else []
    return counts | {name: int(value) for name, value in map(str.split, lines)}


def main(noted: str, *command: str) -> int:
    """Runs a command in this process's namespace, once its loopback interface is up, and notes what
    went astray.
    """
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sh14x", b"lo", UP))
    before = _counts()
    status = subprocess.run(command, check=False).returncode
    after = _counts()
    calls = [
        f"{name}: {after[name] - before[name]}"
        for name in COUNTS
        if after.get(name, 0) != before.get(name, 0)
    ]
    Path(noted).write_text(json.dumps(calls), encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
