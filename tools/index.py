"""A package index: the files of a version, their hashes, and what it requires."""

from __future__ import annotations

import functools
import io
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from email.parser import Parser
from html.parser import HTMLParser
from urllib.parse import urldefrag, urljoin

from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

SECONDS = 120.0
OLDEST_GLIBC, NEWEST_GLIBC = 5, 39  # manylinux_2_5 … manylinux_2_39


@dataclass(frozen=True)
class File:
    """A file that can be installed."""

    name: str
    url: str
    sha256: str

    @property
    def is_wheel(self) -> bool:
        """Whether it is a wheel, or else an archive of sources."""
        return self.name.endswith(".whl")

    def metadata(self) -> str:
        """The core metadata that is in the file."""
        if self.is_wheel:
            with zipfile.ZipFile(RemoteFile(self.url)) as wheel:
                (member,) = [
                    name
                    for name in wheel.namelist()
                    if name.count("/") == 1 and name.endswith(".dist-info/METADATA")
                ]
                return wheel.read(member).decode("utf-8")
        with (
            urllib.request.urlopen(self.url, timeout=SECONDS) as stream,
            tarfile.open(fileobj=stream, mode="r|*") as archive,
        ):
            for part in archive:  # read no further than that
                if part.name.count("/") == 1 and part.name.endswith("/PKG-INFO"):
                    content = archive.extractfile(part)
                    assert content is not None
                    return content.read().decode("utf-8")
        raise SystemExit(f"{self.name} has no PKG-INFO")


class RemoteFile(io.BufferedIOBase):
    """A file on a server of which only parts are read."""

    def __init__(self, url: str) -> None:
        self.url, self.at = url, 0
        with urllib.request.urlopen(
            urllib.request.Request(url, method="HEAD"), timeout=SECONDS
        ) as answer:
            self.size = int(answer.headers["Content-Length"])

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Goes to a place."""
        self.at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.size}[whence]
        return self.at

    def tell(self) -> int:
        """The place."""
        return self.at

    def read(self, count: int | None = -1) -> bytes:
        """Reads so many bytes, or all that are left."""
        end = self.size if count is None or count < 0 else min(self.size, self.at + count)
        if end <= self.at:
            return b""
        request = urllib.request.Request(self.url, headers={"Range": f"bytes={self.at}-{end - 1}"})
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            content: bytes = answer.read()
        assert len(content) == end - self.at, f"{self.url}: the server does not send parts of files"
        self.at = end
        return content


@dataclass(frozen=True)
class Release:
    """The files of one version of a package."""

    name: str
    version: Version
    files: tuple[File, ...]

    def files_for(self, machine: str, pythons: Iterable[tuple[int, int]]) -> list[File]:
        """The wheels for a machine and some Pythons, or the sources where there is no wheel."""
        tags = frozenset().union(*(supported_tags(machine, python) for python in pythons))
        wheels = [
            file
            for file in self.files
            if file.is_wheel and not tags.isdisjoint(parse_wheel_filename(file.name)[3])
        ]
        return wheels or [file for file in self.files if not file.is_wheel]

    def requirements(self, machine: str, pythons: Iterable[tuple[int, int]]) -> list[Requirement]:
        """What the version requires, by one of the files that might be installed: all Pythons get
        the same.
        """
        files = self.files_for(machine, pythons)
        if not files:
            raise SystemExit(f"{self.name} {self.version} has no file for {machine}")
        return [Requirement(words) for words in requires_dist(files[0])]


@functools.cache
def requires_dist(file: File) -> tuple[str, ...]:
    """The requirements in a file's metadata."""
    return tuple(Parser().parsestr(file.metadata(), headersonly=True).get_all("Requires-Dist", []))


@functools.cache
def supported_tags(machine: str, python: tuple[int, int]) -> frozenset[Tag]:
    """The tags of wheels that run on Linux with glibc."""
    manylinux = [
        f"manylinux_2_{minor}_{machine}" for minor in range(NEWEST_GLIBC, OLDEST_GLIBC - 1, -1)
    ]
    old = [f"{name}_{machine}" for name in ("manylinux2014", "manylinux2010", "manylinux1")]
    platforms = [*manylinux, *old, f"linux_{machine}"]
    interpreter = f"cp{python[0]}{python[1]}"
    return frozenset(
        [
            *cpython_tags(python, platforms=platforms),
            *compatible_tags(python, interpreter, platforms),
        ]
    )


class Index:
    """The simple index (PEP 503) at an address."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        self._releases: dict[str, dict[Version, list[File]]] = {}

    def versions(self, name: str) -> list[Version]:
        """The versions of a package, oldest first."""
        return sorted(self._of(name))

    def release(self, name: str, version: str) -> Release:
        """The files of a version."""
        files = self._of(name).get(Version(version))
        if not files:
            raise SystemExit(f"the package index has no {name} {version}")
        return Release(name, Version(version), tuple(files))

    def _of(self, name: str) -> dict[Version, list[File]]:
        key = canonicalize_name(name)
        if key not in self._releases:
            page = f"{self.address}/{key}/"
            try:
                with urllib.request.urlopen(page, timeout=SECONDS) as answer:
                    text = answer.read().decode("utf-8")
            except urllib.error.URLError as error:
                raise SystemExit(
                    f"the package index does not answer for {name} ({error})"
                ) from None
            self._releases[key] = files_of_page(text, page)
        return self._releases[key]


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        """Keeps the attributes of links."""
        if tag == "a":
            self.links.append(dict(attrs))


def files_of_page(text: str, page: str) -> dict[Version, list[File]]:
    """Version → files of a page of the index, without those that were withdrawn."""
    parser = _Links()
    parser.feed(text)
    releases: dict[Version, list[File]] = {}
    for link in parser.links:
        url, fragment = urldefrag(urljoin(page, link.get("href") or ""))
        name, digest = url.rpartition("/")[2], fragment.removeprefix("sha256=")
        if "data-yanked" in link or digest == fragment:
            continue
        try:
            version = (
                parse_wheel_filename(name)[1]
                if name.endswith(".whl")
                else parse_sdist_filename(name)[1]
            )
        except (
            InvalidWheelFilename,
            InvalidSdistFilename,
        ):  # eggs, installers and names from long ago
            continue
        releases.setdefault(version, []).append(File(name, url, digest))
    return releases
