"""Writes the lock files: all that a release needs, with the hashes of its files for both kinds of
CPU.

python tools/lock.py            # requirements.lock, requirements-torch.lock and requirements-dev.lock

Versions are those of constraints.txt; what it does not pin (CUDA's libraries, which only torch asks
for) is the newest that fits. Names, versions and hashes come from the package index that pip uses.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from index import Index, Release
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
NAME = "tasklm"
MACHINES = ("x86_64", "aarch64")
PYTHONS = ((3, 11), (3, 12), (3, 13))
RUNNING, DEVELOPING = ("serve", "onnx", "stemming"), ("dev", "test-spark")
OF_TORCH = (
    "torch",
    "triton",
    "nvidia-",
    "cuda-",
)  # beginnings of names: what differs between torch's builds
INSTALL = "pip install --require-hashes --no-deps"
FILES = {
    "requirements.lock": [
        (
            f"# What `pip install '{NAME}[{','.join(RUNNING)}]'` "
            f"needs but for torch: {INSTALL} -r requirements.lock"
        ),
        (
            "# torch comes in builds for CPUs and for several kinds of "
            "GPUs: install yours first, or add -r requirements-torch.lock."
        ),
    ],
    "requirements-torch.lock": [
        "# torch as the package index has it, and CUDA's libraries, which that build needs."
    ],
    "requirements-dev.lock": [
        "# What tests, documentation and Spark's tests need beside the other two files."
    ],
}
MADE_BY = "# Made by tools/lock.py (make lock) from constraints.txt; do not edit."


@dataclass(frozen=True)
class Target:
    """A machine and a Python for which packages are locked."""

    machine: str
    python: tuple[int, int]

    @property
    def environment(self) -> dict[str, str]:
        """What markers of requirements are compared with."""
        version = ".".join(map(str, self.python))
        here = {str(name): str(value) for name, value in default_environment().items()}
        system = {
            "os_name": "posix",
            "sys_platform": "linux",
            "platform_system": "Linux",
            "platform_machine": self.machine,
        }
        python = {
            "python_version": version,
            "python_full_version": f"{version}.0",
            "implementation_name": "cpython",
        }
        return here | system | python | {"platform_python_implementation": "CPython"}


TARGETS = tuple(Target(machine, python) for machine in MACHINES for python in PYTHONS)


class Releases(Protocol):
    """Where packages are found."""

    def versions(self, name: str) -> list[Version]:
        """The versions of a package, oldest first."""

    def release(self, name: str, version: str) -> Release:
        """The files of a version."""


def read_pins(text: str) -> dict[str, str]:
    """Name → version of lines such as `numpy==2.4.6`, with or without a marker and hashes."""
    pins = {}
    for line in text.replace("\\\n", " ").splitlines():
        words = line.partition("#")[0].partition("--hash")[0].strip()
        if words:
            requirement = Requirement(words)
            (pin,) = requirement.specifier
            assert pin.operator == "==", line
            pins[canonicalize_name(requirement.name)] = pin.version
    return pins


def own_requirements(project: Mapping[str, object], extras: Iterable[str]) -> Iterator[Requirement]:
    """What the project asks for, with some of its extras."""
    table: Mapping[str, list[str]] = project["optional-dependencies"]  # type: ignore[assignment]
    for words in [*project["dependencies"], *(words for extra in extras for words in table[extra])]:  # type: ignore[misc]
        requirement = Requirement(words)
        if canonicalize_name(requirement.name) == NAME:
            yield from own_requirements({**project, "dependencies": []}, sorted(requirement.extras))
        else:
            yield requirement


class Conflict(Exception):
    """A version that was chosen does not fit a requirement that came later."""


def closure(
    asked: Sequence[Requirement], pins: Mapping[str, str], index: Releases, target: Target
) -> dict[str, str]:
    """Name → version of all that some requirements need on a target."""
    bounds: dict[str, SpecifierSet] = defaultdict(
        SpecifierSet
    )  # of packages that are not pinned, by all who need them
    while True:
        try:
            return _closure(asked, pins, bounds, index, target)
        except Conflict:
            continue  # again, with what is known of bounds now


def _closure(
    asked: Sequence[Requirement],
    pins: Mapping[str, str],
    bounds: dict[str, SpecifierSet],
    index: Releases,
    target: Target,
) -> dict[str, str]:
    found: dict[str, str] = {}
    done: set[tuple[str, str]] = set()
    waiting = [(requirement, "") for requirement in asked]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate(
            target.environment | {"extra": extra}
        ):
            continue
        name = canonicalize_name(requirement.name)
        version = pins.get(name)
        if version is None:
            bounds[name] &= requirement.specifier
            version = newest(name, bounds[name], index)
            if found.get(name, version) != version:
                raise Conflict
        elif not requirement.specifier.contains(version, prereleases=True):
            raise SystemExit(
                f"constraints.txt pins {name} {version}, but something needs {requirement}"
            )
        found[name] = version
        for wanted in ("", *sorted(requirement.extras)):
            if (name, wanted) not in done:
                done.add((name, wanted))
                needed = index.release(name, version).requirements(target.machine, PYTHONS)
                waiting += [(one, wanted) for one in needed]
    return found


def newest(name: str, bounds: SpecifierSet, index: Releases) -> str:
    """The newest version within some bounds."""
    fitting = [version for version in index.versions(name) if bounds.contains(version)]
    if not fitting:
        raise SystemExit(f"no version of {name} fits {bounds}")
    return str(max(fitting))


@dataclass(frozen=True)
class Locked:
    """A package of a lock file: its version, and on which machines it is needed."""

    name: str
    version: str
    machines: tuple[str, ...]

    def lines(self, index: Releases) -> list[str]:
        """Its lines in a lock file; fails where a machine that needs it has no file to install."""
        release = index.release(self.name, self.version)
        hashes: set[str] = set()
        for machine in self.machines:
            files = release.files_for(machine, PYTHONS)
            if not files:
                raise SystemExit(f"{self.name} {self.version} has no file for {machine}")
            hashes |= {file.sha256 for file in files}
        marker = "" if self.machines == MACHINES else f" ; platform_machine == '{self.machines[0]}'"
        head = f"{self.name}=={self.version}{marker}"
        return " \\\n    ".join(
            [head, *(f"--hash=sha256:{digest}" for digest in sorted(hashes))]
        ).split("\n")


def locked(
    asked: Iterable[Requirement], pins: Mapping[str, str], index: Releases
) -> dict[str, Locked]:
    """All that some requirements need on any target."""
    requirements = list(asked)
    machines: dict[tuple[str, str], set[str]] = defaultdict(set)
    for target in TARGETS:
        for package in closure(requirements, pins, index, target).items():
            machines[package].add(target.machine)
    packages = {}
    for (name, version), needing in sorted(machines.items()):
        assert name not in packages, f"{name} has two versions"
        packages[name] = Locked(
            name, version, tuple(machine for machine in MACHINES if machine in needing)
        )
    return packages


def main() -> None:
    """Writes the files."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = read_pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    index = Index(index_url())
    everything = functools.partial(locked, pins=pins, index=index)
    running = everything(own_requirements(project, RUNNING))
    developing = everything(own_requirements(project, (*RUNNING, *DEVELOPING)))
    of_torch = {name: one for name, one in running.items() if name.startswith(OF_TORCH)}
    parts = {
        "requirements.lock": {name: one for name, one in running.items() if name not in of_torch},
        "requirements-torch.lock": of_torch,
        "requirements-dev.lock": {
            name: one for name, one in developing.items() if name not in running
        },
    }
    for name, packages in parts.items():
        lines = [line for package in packages.values() for line in package.lines(index)]
        (ROOT / name).write_text(
            "\n".join([MADE_BY, *FILES[name], *lines]) + "\n", encoding="utf-8"
        )
        print(f"{name}: {len(packages)} packages", file=sys.stderr)


def index_url() -> str:
    """The package index that pip uses."""
    command = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return told or "https://pypi.org/simple"


if __name__ == "__main__":
    main()
