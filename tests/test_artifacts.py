"""Artefacts: built once, continued, shared, and made again when damaged."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tasklm import artifacts as artefacts_module
from tasklm.artifacts import DAMAGED, Artefacts, rebuilding, set_aside
from tasklm.errors import DamagedError, RunError
from tasklm.storage.files import ARTEFACT, read_json, write_json


def test_an_artefact_is_built_once_per_key(tmp_path: Path) -> None:
    calls = []
    artefacts = Artefacts(tmp_path)

    def build(folder: Path) -> None:
        calls.append(folder)
        (folder / "value").write_text("x")

    for key in ("a", "a", "b"):
        assert (artefacts.build("thing", key, build) / "value").read_text() == "x"
    assert len(calls) == 2 and artefacts.key("thing") == "b"


def test_a_partial_artefact_is_continued_with_the_same_key_and_thrown_away_with_another(
    tmp_path: Path,
) -> None:
    artefacts = Artefacts(tmp_path)

    def fail(folder: Path) -> None:
        (folder / "half").write_text("1")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        artefacts.build("thing", "a", fail)
    assert artefacts.key("thing") is None
    seen = []
    artefacts.build("thing", "a", lambda folder: seen.append((folder / "half").exists()))
    with pytest.raises(RuntimeError):
        artefacts.build("other", "a", fail)
    artefacts.build("other", "b", lambda folder: seen.append((folder / "half").exists()))
    assert seen == [True, False]


def test_what_is_not_of_a_run_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thing").mkdir()
    (tmp_path / "thing" / "mine").write_text("1")
    with pytest.raises(
        RunError,
        match=(
            r"thing is in the way and is not part of a run. "
            r"Move it away, or choose another folder with --out"
        ),
    ):
        Artefacts(tmp_path).build("thing", "a", lambda folder: None)
    assert (tmp_path / "thing" / "mine").read_text() == "1"


def test_killed_while_an_old_artefact_goes_away_it_is_done_with_at_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(folder: Path, **_: bool) -> None:
        if folder.exists():
            raise KeyboardInterrupt

    artefacts = Artefacts(tmp_path)
    artefacts.build("thing", "a", lambda folder: None)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("tasklm.storage.files.shutil.rmtree", killed)
        artefacts.build("thing", "b", lambda folder: None)
    assert artefacts.key("thing") == "b"
    artefacts.build("thing", "c", lambda folder: None)
    assert artefacts.key("thing") == "c" and [path.name for path in tmp_path.iterdir()] == ["thing"]


def writer(**files: str) -> Callable[[Path], None]:
    """A builder that writes these files."""

    def build(folder: Path) -> None:
        for name, text in files.items():
            (folder / name).write_text(text)

    return build


HARMS: dict[str, Callable[[Path], object]] = {
    "flipped": lambda path: path.write_bytes(
        bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:]
    ),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "gone": lambda path: path.unlink(),
}


# a folder without its record is not known as ours
CASES = [
    (name, harm)
    for name in ("value", "inside/other", ARTEFACT)
    for harm in HARMS
    if (name, harm) != (ARTEFACT, "gone")
]


@pytest.mark.parametrize(("name", "harm"), CASES)
def test_a_damaged_artefact_is_made_again(tmp_path: Path, harm: str, name: str) -> None:
    messages: list[str] = []

    def build(folder: Path) -> None:
        (folder / "inside").mkdir()
        (folder / "inside" / "other").write_text("other text")
        (folder / "value").write_text("some text")

    artefacts = Artefacts(tmp_path, tell=messages.append)
    artefacts.build("thing", "a", build)
    HARMS[harm](tmp_path / "thing" / name)
    artefacts.build("thing", "a", build)
    assert (tmp_path / "thing" / "value").read_text() == "some text"
    assert (tmp_path / "thing" / "inside" / "other").read_text() == "other text"
    assert len(messages) == 1 and "damaged" in messages[0] and "thing" in messages[0]
    artefacts.build("thing", "a", lambda folder: pytest.fail("it is whole again"))


def test_a_damaged_artefact_stays_until_it_is_made_again(tmp_path: Path) -> None:
    artefacts = Artefacts(tmp_path)
    artefacts.build("thing", "a", writer(value="x"))
    HARMS["flipped"](tmp_path / "thing" / "value")

    def fail(folder: Path) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        artefacts.build("thing", "a", fail)
    assert (tmp_path / "thing" / "value").exists() and artefacts.key("thing") is None
    artefacts.build("thing", "a", writer(value="x"))
    assert artefacts.key("thing") == "a" and not (tmp_path / "thing" / DAMAGED).exists()


def test_of_large_artefacts_sizes_are_looked_at_and_contents_when_something_is_made_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artefacts_module, "READ_ANYWAY", 10)
    artefacts = Artefacts(tmp_path)
    large = artefacts.build("large", "a", writer(small="12345678", value="0123456789" * 10))
    HARMS["flipped"](large / "value")
    artefacts.build("large", "a", lambda folder: pytest.fail("nobody has read it"))
    with pytest.raises(
        DamagedError, match=r"value is damaged \(its checksum does not match\)"
    ) as error:
        artefacts.build("made of it", "a", lambda folder: pytest.fail("not of this"), uses=[large])
    assert error.value.artefact == large
    HARMS["flipped"](large / "value")
    artefacts.build("made of it", "a", writer(value="x"), uses=[large])
    HARMS["flipped"](large / "value")
    artefacts.build("made of it", "a", lambda folder: pytest.fail("it is there"), uses=[large])
    HARMS["flipped"](large / "small")
    assert artefacts.is_damaged("large")


def test_what_was_made_of_something_else_is_made_again_only_where_its_content_changed(
    tmp_path: Path,
) -> None:
    artefacts, calls = Artefacts(tmp_path), []

    def made(folder: Path) -> None:
        calls.append(folder)

    first = artefacts.build("first", "a", writer(value="x", **{"summary.json": "1 s"}))
    artefacts.build("second", "a", made, uses=[first])
    HARMS["flipped"](first / "value")
    # times are no part of the content
    artefacts.build("first", "a", writer(value="x", **{"summary.json": "2 s"}))
    artefacts.build("second", "a", made, uses=[first])
    assert len(calls) == 1
    HARMS["flipped"](first / "value")
    artefacts.build("first", "a", writer(value="another"))
    artefacts.build("second", "a", made, uses=[first])
    artefacts.build("second", "a", made, uses=[first])
    assert len(calls) == 2


def test_what_is_left_half_done_is_not_continued_from_something_else(tmp_path: Path) -> None:
    artefacts = Artefacts(tmp_path)
    first = artefacts.build("first", "a", writer(value="x"))

    def fail(folder: Path) -> None:
        (folder / "half").write_text("of x")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        artefacts.build("second", "a", fail, uses=[first])
    HARMS["empty"](first / "value")
    artefacts.build("first", "a", writer(value="another"))
    seen = []
    artefacts.build(
        "second", "a", lambda folder: seen.append((folder / "half").exists()), uses=[first]
    )
    assert seen == [False]


def test_artefacts_of_the_version_before_are_believed(tmp_path: Path) -> None:
    artefacts = Artefacts(tmp_path)
    first = artefacts.build("first", "a", writer(value="x"))
    second = artefacts.build("second", "a", writer(value="y"), uses=[first])
    for folder in (first, second):
        write_json(folder / ARTEFACT, {"key": "a", "seconds": 1.5})
    assert artefacts.key("first") == "a" and artefacts.seconds("second") == 1.5
    artefacts.build("first", "a", lambda folder: pytest.fail("it is there"))
    artefacts.build("second", "a", lambda folder: pytest.fail("it is there"), uses=[first])
    third = artefacts.build("third", "a", writer(value="z"), uses=[first])
    artefacts.build("first", "b", writer(value="x"))
    artefacts.build(
        "third", "a", lambda folder: pytest.fail("what it was made of is not known"), uses=[first]
    )
    assert read_json(third / ARTEFACT)["uses"] == {"first": ""}


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("older", [False, True])
def test_what_was_complete_when_the_machine_stopped_gets_its_name(
    tmp_path: Path, together: bool, older: bool
) -> None:
    artefacts = Artefacts(tmp_path)
    if older:
        artefacts.build("thing", "before", writer(value="old"))
        (tmp_path / "thing").rename(tmp_path / ".thing.old")
    artefacts.build("thing", "a", writer(value="x"))
    (tmp_path / "thing").rename(tmp_path / "thing.partial")
    write_json(tmp_path / "thing.partial" / "partial.json", {"key": "a", "seconds": 1.0})
    artefacts.build("thing", "a", lambda folder: pytest.fail("it is complete"), together=together)
    assert sorted(path.name for path in (tmp_path / "thing").iterdir()) == [ARTEFACT, "value"]
    artefacts.sweep()
    assert [path.name for path in tmp_path.iterdir()] == ["thing"]


def test_a_complete_one_that_is_damaged_is_not_believed(tmp_path: Path) -> None:
    artefacts = Artefacts(tmp_path)
    artefacts.build("thing", "a", writer(value="x"))
    (tmp_path / "thing").rename(tmp_path / "thing.partial")
    HARMS["flipped"](tmp_path / "thing.partial" / "value")
    artefacts.build("thing", "a", writer(value="x"))
    assert (tmp_path / "thing" / "value").read_text() == "x"


def test_work_that_meets_damage_begins_again_with_it_made_anew(tmp_path: Path) -> None:
    artefacts, messages, works = Artefacts(tmp_path), [], []

    def work() -> str:
        works.append(1)
        folder = artefacts.build("thing", "a", writer(value="x"))
        if len(works) == 1:
            raise DamagedError(folder / "value", "torn", "Do this.", folder)
        return (folder / "value").read_text()

    assert rebuilding(work, [tmp_path], messages.append) == "x"
    assert len(works) == 2 and messages == [
        f"{tmp_path / 'thing' / 'value'} is damaged (torn); rebuilding thing"
    ]
    assert artefacts.key("thing") == "a"


def test_what_is_damaged_again_or_not_ours_is_an_error(tmp_path: Path) -> None:
    artefacts, works = Artefacts(tmp_path / "run"), []
    other = Artefacts(tmp_path / "other").build("thing", "a", writer(value="x"))

    def always(folder: Path) -> Callable[[], None]:
        def work() -> None:
            works.append(1)
            artefacts.build("thing", "a", writer(value="x"))
            raise DamagedError(folder / "value", "torn", "Do this.", folder)

        return work

    for folder, times in ((tmp_path / "run" / "thing", 2), (other, 1)):
        works.clear()
        with pytest.raises(DamagedError, match=r"torn\)\. Do this"):
            rebuilding(always(folder), [tmp_path / "run"], lambda message: None)
        assert len(works) == times
    assert not (other / DAMAGED).exists()
    with pytest.raises(DamagedError):  # others of a crew are at another place
        rebuilding(
            always(tmp_path / "run" / "thing"),
            [tmp_path / "run"],
            lambda message: None,
            several=True,
        )
    assert artefacts.key("thing") is None  # but the next command makes it again


def test_damage_of_what_is_under_way_begins_it_anew(tmp_path: Path) -> None:
    artefacts, seen = Artefacts(tmp_path), []

    def build(folder: Path) -> None:
        seen.append((folder / "half").exists())
        (folder / "half").write_text("1")
        if len(seen) == 1:
            raise DamagedError(folder / "half", "torn", "Do this.", folder)

    rebuilding(lambda: artefacts.build("thing", "a", build), [tmp_path], lambda message: None)
    assert seen == [False, False]


def test_temporary_files_of_dead_processes_are_swept_and_of_living_ones_not(tmp_path: Path) -> None:
    dead = 2**22 + 1  # above the highest number that Linux gives
    artefacts = Artefacts(tmp_path)
    for name in (
        f".x.json.{dead}.tmp",
        f".x.json.{os.getppid()}.tmp",
        f".m.{os.getpid()}.tmp",
        ".thing.old",
        "mine.tmp",
        ".hidden",
    ):
        (tmp_path / name).mkdir() if name.endswith("old") else (tmp_path / name).touch()
    artefacts.sweep()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".hidden",
        f".x.json.{os.getppid()}.tmp",
        "mine.tmp",
    ]


def test_what_a_killed_builder_left_under_a_temporary_name_is_no_part_of_the_artefact(
    tmp_path: Path,
) -> None:
    artefacts = Artefacts(tmp_path)

    def killed(folder: Path) -> None:
        (folder / f".value.{2**22 + 1}.tmp").touch()
        raise RuntimeError

    with pytest.raises(RuntimeError):
        artefacts.build("thing", "a", killed)
    artefacts.build("thing", "a", writer(value="x"))
    assert sorted(path.name for path in (tmp_path / "thing").iterdir()) == [ARTEFACT, "value"]


def test_what_is_left_of_another_recipe_goes_when_the_artefact_is_done(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        raise RuntimeError

    artefacts = Artefacts(tmp_path)
    artefacts.build("thing", "a", writer(value="x"))
    with pytest.raises(RuntimeError):
        artefacts.build("thing", "b", fail)
    assert (tmp_path / "thing.partial").exists()
    artefacts.build("thing", "a", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["thing"]


def test_in_a_shared_folder_old_partial_artefacts_are_swept_unless_somebody_is_at_them(
    tmp_path: Path,
) -> None:
    shared = Artefacts(tmp_path, waiting=lambda message: None)
    for name in ("old", "new", "busy"):
        (tmp_path / f"{name}.partial").mkdir()
    long_ago = time.time() - 2 * artefacts_module.STALE
    for name in ("old", "busy"):
        os.utime(tmp_path / f"{name}.partial", (long_ago, long_ago))
    with shared._lock("busy", wait=True):
        Artefacts(tmp_path, waiting=lambda message: None).sweep()
    assert sorted(path.name for path in tmp_path.glob("*.partial")) == [
        "busy.partial",
        "new.partial",
    ]
    Artefacts(tmp_path / "run").sweep()
    assert shared.waiting is not None


def test_a_marked_artefact_says_why(tmp_path: Path) -> None:
    folder = Artefacts(tmp_path).build("thing", "a", writer(value="x"))
    set_aside(folder, "value: torn")
    assert json.loads((folder / DAMAGED).read_text()) == {"problem": "value: torn"}
