"""The site builds without a warning, loads nothing from elsewhere, and its links lead somewhere."""

from __future__ import annotations

import html
import importlib
import inspect
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest

from tasklm.recipe.schema import section_types
from tests.docs.blocks import ROOT
from tests.docs.commands import CLI

LOADING = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
    "object": "data",
}


class Page(HTMLParser):
    """Gathers what a page loads, where it links to, and the places in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.places.add(given["id"])
        if tag == "link" and given.get("rel") not in ("canonical", "prev", "next"):
            self.loads.append(given.get("href", ""))
        elif tag in LOADING and LOADING[tag] in given:
            self.loads.append(given[LOADING[tag]])
        elif tag == "a" and "href" in given:
            self.links.append(given["href"])
        if style := given.get("style"):
            self.loads += re.findall(r"url\(['\"]?([^'\")]+)", style)


def outside(address: str) -> bool:
    """Whether an address is not of the site."""
    return bool(urlsplit(address).scheme not in ("", "data") or urlsplit(address).netloc)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly."""
    pytest.importorskip(
        "material",
        reason=(
            "mkdocs-material is not installed: "
            "THE SITE IS NOT BUILT. Install it: pip install '.[docs]'"
        ),
    )
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def built(site: Path) -> dict[Path, Page]:
    """The pages of the site."""
    return {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def test_nothing_is_loaded_from_elsewhere(site: Path, built: dict[Path, Page]) -> None:
    assert len(built) > 20
    for path, page in built.items():
        strangers = [address for address in page.loads if outside(address)]
        assert not strangers, f"{path.relative_to(site)} loads {strangers}"
        for style in re.findall(
            r"<style>(.*?)</style>", path.read_text(encoding="utf-8"), re.DOTALL
        ):
            assert not re.search(r"@import|url\(['\"]?(https?:)?//", style), path
    for sheet in site.rglob("*.css"):
        assert not re.search(
            r"@import|url\(['\"]?(https?:)?//", sheet.read_text(encoding="utf-8")
        ), sheet


def test_what_is_loaded_is_there(site: Path, built: dict[Path, Page]) -> None:
    for path, page in built.items():
        for address in page.loads:
            if address and not address.startswith("data:") and path.name != "404.html":
                assert (path.parent / unquote(urlsplit(address).path)).exists(), (
                    f"{path.relative_to(site)} loads {address}"
                )


def test_links_lead_somewhere(site: Path, built: dict[Path, Page]) -> None:
    for path, page in built.items():
        for link in page.links:
            parts = urlsplit(link)
            if outside(link) or path.name == "404.html":  # its links are from the root on
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            assert target.is_relative_to(site.resolve()) or target == path, (
                f"{path.relative_to(site)} links outside: {link}"
            )
            assert target.exists(), f"{path.relative_to(site)} links to {link}, which is not there"
            if parts.fragment and target.suffix == ".html":
                places = (
                    built[site / target.relative_to(site.resolve())].places
                    if target != path
                    else page.places
                )
                assert unquote(parts.fragment) in places, (
                    f"{path.relative_to(site)} links to {link}, and there is no such place"
                )


def test_a_page_that_loads_from_elsewhere_would_be_found() -> None:
    page = Page(
        '<link rel="stylesheet" '
        'href="https://fonts.example/css"><script '
        'src="//cdn.example/x.js"></script><img src="a.png">'
    )
    assert [outside(address) for address in page.loads] == [True, True, False]
    assert not outside("data:image/png;base64,xx")


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script that writes the reference."""
    monkeypatch.syspath_prepend(str(ROOT / "docs_build"))
    return importlib.import_module("reference_pages")


def test_the_reference_has_every_verb_key_and_method(reference: ModuleType) -> None:
    from tasklm.api.estimator import TaskLM

    pages = reference.reference_pages()
    for name, verb in CLI.commands.items():
        part = pages["reference/cli.md"].split(f"## tasklm {name}\n")[1].split("\n## ")[0]
        assert all(
            f"`{param.opts[0] if param.opts[0].startswith('-') else param.name.upper()}`" in part
            for param in verb.params
        ), name
        assert f"```sh\ntasklm {name}" in part, f"{name} has no example"
    for section, cls in section_types().items():
        part = pages["reference/recipe.md"].split(f"## {section}\n")[1].split("\n## ")[0]
        for key, field in cls.__dataclass_fields__.items():
            row = next(line for line in part.splitlines() if line.startswith(f"| `{key}` |"))
            assert field.metadata["help"] in re.sub(r"\\([|*])", r"\1", html.unescape(row))
    own = {
        name: value
        for name, value in vars(TaskLM).items()
        if inspect.isfunction(value) or isinstance(value, classmethod)
    }
    for name, method in own.items():
        if not name.startswith("_"):
            assert f"### {name}\n" in pages["reference/api.md"] and inspect.getdoc(method), name
    assert (
        "dev_share" in pages["reference/recipe.md"]
        and "number, at least 0.01, at most 0.5" in pages["reference/recipe.md"]
    )
