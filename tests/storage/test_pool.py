"""Runs that share finished steps: each is built once, takes its space once, and damage is not
passed on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tasklm.artifacts import Artefacts, set_aside

Builder = Callable[[Path], None]


def builder(built: list[str], text: str = "text") -> Builder:
    """Writes two files, one in a folder, and notes that it did."""

    def build(folder: Path) -> None:
        built.append(folder.name)
        (folder / "inner").mkdir()
        (folder / "inner" / "file.txt").write_text(text, encoding="utf-8")
        (folder / "other.txt").write_text("other", encoding="utf-8")

    return build


def runs(folder: Path, count: int = 2) -> list[Artefacts]:
    return [Artefacts(folder / f"run-{number}", pool=folder / "pool") for number in range(count)]


def test_a_second_run_links_to_what_the_first_has_built(tmp_path: Path) -> None:
    built: list[str] = []
    one, two = runs(tmp_path)
    first = one.build("stage1", "key", builder(built))
    second = two.build("stage1", "key", builder(built))
    assert built == ["stage1.partial"]
    inner = [folder / "inner" / "file.txt" for folder in (first, second)]
    assert inner[0].samefile(inner[1]) and inner[1].read_text(encoding="utf-8") == "text"
    assert two.key("stage1") == "key" and two.seconds("stage1") == one.seconds("stage1")
    assert (two.builds, one.builds) == (1, 1)  # a link counts: the run was not complete


def test_another_key_or_another_input_is_not_shared(tmp_path: Path) -> None:
    built: list[str] = []
    one, two = runs(tmp_path)
    inputs = [
        artefacts.build("tokens", f"key {number}", builder([], f"text {number}"))
        for number, artefacts in enumerate((one, two))
    ]
    one.build("stage1", "key", builder(built), uses=[inputs[0]])
    two.build("stage1", "key", builder(built), uses=[inputs[1]])
    assert len(built) == 2
    two.build("stage1", "another key", builder(built), uses=[inputs[1]])
    assert len(built) == 3


def test_what_a_killed_run_left_is_replaced_by_the_link(tmp_path: Path) -> None:
    built: list[str] = []
    one, two = runs(tmp_path)
    one.build("stage1", "key", builder(built))
    partial = two.folder / "stage1.partial"
    partial.mkdir()
    (partial / "checkpoint").write_text("half", encoding="utf-8")
    final = two.build("stage1", "key", builder(built))
    assert len(built) == 1 and not partial.exists() and not (final / "checkpoint").exists()


def test_a_run_that_goes_leaves_the_others_whole(tmp_path: Path) -> None:
    one, two = runs(tmp_path)
    one.build("stage1", "key", builder([]))
    final = two.build("stage1", "key", builder([]))
    for path in sorted(one.folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert (final / "other.txt").read_text(encoding="utf-8") == "other"


def test_damage_is_noticed_and_built_again(tmp_path: Path) -> None:
    built: list[str] = []
    said: list[str] = []
    one, two = runs(tmp_path)
    two.tell = said.append
    first = one.build("stage1", "key", builder(built))
    (first / "other.txt").write_text("OTHER", encoding="utf-8")  # also in the pool: the same file
    final = two.build("stage1", "key", builder(built))
    assert len(built) == 2 and (final / "other.txt").read_text(encoding="utf-8") == "other"
    assert "its checksum does not match" in said[0]
    set_aside(final, "found in use")  # damage that checksums do not show
    again = two.build("stage1", "key", builder(built))
    assert len(built) == 3 and (again / "other.txt").exists()


def test_without_a_pool_nothing_is_shared(tmp_path: Path) -> None:
    built: list[str] = []
    for name in ("one", "two"):
        Artefacts(tmp_path / name).build("stage1", "key", builder(built))
    assert len(built) == 2 and sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]
