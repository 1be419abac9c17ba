"""What goes out with a release: locked packages and the bill of materials."""

from __future__ import annotations

import hashlib
import http.server
import importlib
import io
import json
import re
import sys
import tarfile
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from email.message import Message
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("packaging")

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ("requirements.lock", "requirements-torch.lock", "requirements-dev.lock")


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports modules of the tools by name."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_lock_files_have_the_versions_of_the_constraints_and_nothing_is_missing(tool: Any) -> None:
    read_pins = tool("lock").read_pins
    pins = read_pins(text_of("constraints.txt"))
    locked = [read_pins(text_of(name)) for name in LOCKS]
    together = {name: version for packages in locked for name, version in packages.items()}
    assert len(together) == sum(map(len, locked)), "a package stands in two files"
    assert {name: together.get(name) for name in pins if name != "pip"} == {
        name: pins[name] for name in pins if name != "pip"
    }
    for name, packages in zip(LOCKS, locked, strict=True):
        unpinned = set(packages) - set(pins)
        assert name == "requirements-torch.lock" or unpinned <= {"setuptools"}, "run: make lock"


def test_lock_files_have_all_that_the_project_asks_for(tool: Any) -> None:
    lock = tool("lock")
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    asked = {
        lock.canonicalize_name(one.name)
        for one in lock.own_requirements(project, (*lock.RUNNING, *lock.DEVELOPING))
    }
    assert {"torch", "fastapi", "onnxruntime", "pytest", "pyspark"} <= asked
    assert asked <= {name for file in LOCKS for name in lock.read_pins(text_of(file))}


def test_what_the_project_asks_for_can_be_installed_together(tool: Any) -> None:
    """torch of the package index pins Triton: an extra that asks for another
    cannot be installed.
    """
    lock = tool("lock")
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    versions: dict[str, str] = {}
    for file in LOCKS:
        versions |= lock.read_pins(text_of(file))
    for one in lock.own_requirements(project, (*lock.RUNNING, *lock.DEVELOPING)):
        version = versions[lock.canonicalize_name(one.name)]
        assert one.specifier.contains(version, prereleases=True), f"{one}, but {version} is locked"


def test_every_locked_package_has_hashes() -> None:
    for file in LOCKS:
        lines = [line for line in text_of(file).splitlines() if not line.startswith("#")]
        for line, following in zip(lines, [*lines[1:], ""], strict=True):
            if "==" in line:
                assert line.endswith(" \\") and "--hash" in following, line
            else:
                assert re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line), line


def wheel(name: str, version: str, *requires: str) -> bytes:
    """A wheel with nothing but its metadata."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        lines = [
            f"Name: {name}",
            f"Version: {version}",
            *(f"Requires-Dist: {words}" for words in requires),
        ]
        file.writestr(
            f"{name}-{version}.dist-info/METADATA",
            "\n".join(lines) + "\n\nRequires-Dist: nothing-of-the-body\n",
        )
    return content.getvalue()


def sources(name: str, version: str, *requires: str) -> bytes:
    """An archive of sources."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as file:
        text = "\n".join(
            [
                f"Name: {name}",
                f"Version: {version}",
                *(f"Requires-Dist: {words}" for words in requires),
            ]
        ).encode()
        part = tarfile.TarInfo(f"{name}-{version}/PKG-INFO")
        part.size = len(text)
        file.addfile(part, io.BytesIO(text))
    return content.getvalue()


FILES = {
    "app-1.0-py3-none-any.whl": wheel(
        "app",
        "1.0",
        "part[fast]>=1",
        "only ; platform_machine == 'x86_64'",
        "gone ; extra == 'more'",
    ),
    "part-2.0-cp311-cp311-manylinux_2_28_x86_64.whl": wheel(
        "part", "2.0", "loose>=1", "speed==3 ; extra == 'fast'"
    ),
    "part-2.0-cp311-cp311-manylinux_2_28_aarch64.whl": wheel(
        "part", "2.0", "speed==3 ; extra == 'fast'", "loose>=1"
    ),
    "part-2.0-cp311-cp311-win_amd64.whl": wheel("part", "2.0"),
    "part-2.0-cp39-cp39-manylinux_2_28_x86_64.whl": wheel("part", "2.0"),
    "part-2.0.tar.gz": sources("part", "2.0"),
    "only-1.0-cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64.whl": wheel("only", "1.0"),
    "speed-3.tar.gz": sources("speed", "3", "loose<2"),
    "loose-1.5-py3-none-any.whl": wheel("loose", "1.5"),
    "loose-2.5-py3-none-any.whl": wheel("loose", "2.5"),
    "loose-1.9-py3-none-any.whl": wheel("loose", "1.9"),
}
YANKED = "loose-1.9-py3-none-any.whl"


class Handler(http.server.BaseHTTPRequestHandler):
    """A package index, whose files are sent in parts."""

    def do_HEAD(self) -> None:
        self._send(FILES[self.path.rpartition("/")[2]], body=False)

    def do_GET(self) -> None:
        name = self.path.strip("/").rpartition("/")[2]
        if name in FILES:
            first, _, last = self.headers.get("Range", "").removeprefix("bytes=").partition("-")
            self._send(FILES[name][int(first or 0) : int(last or len(FILES[name])) + 1])
            return
        links = []
        for file, content in FILES.items():
            if file.startswith(f"{name}-"):
                yanked = ' data-yanked="broken"' if file == YANKED else ""
                links.append(
                    f'<a href="/files/{file}#sha256={hashlib.sha256(content).hexdigest()}"{yanked}>{file}</a>'
                )
        self._send("\n".join([*links, "<a href='/files/odd.exe#sha256=0'>odd.exe</a>"]).encode())

    def _send(self, content: bytes, body: bool = True) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *given: Any) -> None:
        pass


@pytest.fixture
def index(tool: Any) -> Iterator[Any]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield tool("index").Index(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()


def digest(name: str) -> str:
    return f"--hash=sha256:{hashlib.sha256(FILES[name]).hexdigest()}"


def test_a_lock_has_what_is_needed_on_each_machine_with_the_hashes_of_its_files(
    tool: Any, index: Any
) -> None:
    lock = tool("lock")
    packages = lock.locked([lock.Requirement("app")], {"app": "1.0", "part": "2.0"}, index)
    assert {one.name: (one.version, one.machines) for one in packages.values()} == {
        "app": ("1.0", lock.MACHINES),
        "loose": ("1.5", lock.MACHINES),  # the newest below 2 that was not withdrawn
        "only": ("1.0", ("x86_64",)),
        "part": ("2.0", lock.MACHINES),
        "speed": ("3", lock.MACHINES),
    }
    lines = {
        name: " ".join(one.lines(index)).replace("\\", "").split() for name, one in packages.items()
    }
    both = sorted(
        digest(f"part-2.0-cp311-cp311-manylinux_2_28_{machine}.whl") for machine in lock.MACHINES
    )
    assert lines["part"] == ["part==2.0", *both]
    assert lines["speed"] == ["speed==3", digest("speed-3.tar.gz")]  # there is no wheel
    assert (
        lines["only"][:5] == ["only==1.0", ";", "platform_machine", "==", "'x86_64'"]
        and len(lines["only"]) == 6
    )
    text = "\n".join(line for one in packages.values() for line in one.lines(index))
    assert lock.read_pins(text) == {one.name: one.version for one in packages.values()}


@pytest.mark.parametrize(
    ("asked", "pins", "told"),
    [
        ("app>=2", {"app": "1.0"}, "constraints.txt pins app 1.0, but something needs app>=2"),
        ("only", {"only": "1.0"}, "only 1.0 has no file for aarch64"),
        ("loose>7", {}, "no version of loose fits >7"),
        ("loose", {"loose": "4"}, "has no loose 4"),
    ],
)
def test_what_cannot_be_locked_is_told(
    tool: Any, index: Any, asked: str, pins: dict[str, str], told: str
) -> None:
    lock = tool("lock")
    with pytest.raises(SystemExit, match=re.escape(told)):
        lock.locked([lock.Requirement(asked)], pins, index)


def test_the_bill_of_materials_names_what_is_installed(
    tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        own = distribution("tasklm").version
    except PackageNotFoundError:
        pytest.skip("tasklm is not installed, only found: NO BILL OF MATERIALS")
    program = tool("sbom")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for name in ("one", "other"):
        monkeypatch.setattr(
            sys, "argv", ["sbom.py", "--out", str(tmp_path / "build" / name), "--extras", "serve"]
        )
        program.main()
    written = (tmp_path / "build" / "one").read_text(encoding="utf-8")
    assert written == (tmp_path / "build" / "other").read_text(encoding="utf-8")
    bill = json.loads(written)
    assert (bill["bomFormat"], bill["specVersion"], bill["metadata"]["timestamp"]) == (
        "CycloneDX",
        "1.6",
        "2023-11-14T22:13:20Z",
    )
    assert (bill["metadata"]["component"]["name"], bill["metadata"]["component"]["version"]) == (
        "tasklm",
        own,
    )
    components = {one["name"]: one for one in bill["components"]}
    assert {
        "torch",
        "numpy",
        "fastapi",
        "starlette",
    } <= components.keys() and "pytest" not in components
    assert (
        components["numpy"]["purl"] == f"pkg:pypi/numpy@{distribution('numpy').version}"
        and components["numpy"]["licenses"]
    )
    known = {one["bom-ref"] for one in [*bill["components"], bill["metadata"]["component"]]}
    needs = {one["ref"]: one["dependsOn"] for one in bill["dependencies"]}
    assert (
        needs.keys() == known and {other for others in needs.values() for other in others} <= known
    )
    assert components["starlette"]["bom-ref"] in needs[components["fastapi"]["bom-ref"]]
    assert f"and {len(components)} packages" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lines", "licences"),
    [
        (
            {"License-Expression": "MIT OR Apache-2.0", "License": "MIT"},
            [{"expression": "MIT OR Apache-2.0"}],
        ),
        (
            {"Classifier": ("License :: OSI Approved :: BSD License")},
            [{"license": {"name": "BSD License"}}],
        ),
        (
            {"Classifier": "License :: OSI Approved", "License": "BSD"},
            [{"license": {"name": "BSD"}}],
        ),
        ({"License": "a whole text\nof many lines"}, []),
        ({}, []),
    ],
)
def test_licences_are_those_that_a_package_names(
    tool: Any, lines: dict[str, str], licences: list[Any]
) -> None:
    metadata = Message()
    for name, value in lines.items():
        metadata[name] = value
    assert tool("sbom").licenses(SimpleNamespace(metadata=metadata)) == licences
