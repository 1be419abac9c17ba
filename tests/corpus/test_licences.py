"""Licences are those that the user, a column or a file beside states, and patterns name files."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasklm.corpus.corpus_text import licence_of, local_text
from tasklm.corpus.licences import (
    LONGEST,
    NOT_STATED,
    RowLicences,
    RowRule,
    as_licence,
    licence_beside,
    path_matches,
)
from tasklm.corpus.sources import read_documents
from tasklm.errors import DataError, RecipeError
from tasklm.recipe.data_sections import Data
from tests.conftest import write_jsonl

APACHE = """
                                 Apache License
                           Version 2.0, January 2004

   TERMS AND CONDITIONS
"""


def licences_in(path: Path, column: str = "") -> tuple[list[str], str]:
    """What the rows of a file state, and the column that they state it in."""
    rows = RowLicences(column)
    return [document.licence for document in read_documents(path, licences=rows)], rows.column


@pytest.mark.parametrize("name", ["license", "Licence", "SPDX", "license_type"])
def test_a_column_is_known_by_its_name(tmp_path: Path, name: str) -> None:
    rows: list[dict[str, object]] = [
        {"text": "one text", name: " CC0-1.0\n"},
        {"text": "another text", name: None},
        {"text": "a third text", name: ["MIT", "Apache-2.0"]},
    ]
    path = write_jsonl(tmp_path / "a.jsonl", rows)
    assert licences_in(path) == (["CC0-1.0", "", "MIT, Apache-2.0"], name)


def test_a_column_is_named_and_must_be_there(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"text": "one text", "licence": "MIT", "terms": "CC0-1.0"}]
    path = write_jsonl(tmp_path / "a.jsonl", rows)
    assert licences_in(path, "terms") == (["CC0-1.0"], "terms")
    with pytest.raises(DataError, match=r"a\.jsonl, line 1: there is no column 'term' with lic"):
        licences_in(path, "term")
    plain = tmp_path / "a.txt"
    plain.write_text("A text without columns.", encoding="utf-8")
    assert licences_in(plain, "terms") == ([""], "")


def test_the_column_of_the_text_states_no_licence(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"license": "the text of a licence, word for word"}])
    assert licences_in(path) == ([""], "")


def test_a_column_of_something_else_is_refused_with_the_way_out(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"text": f"text {i}", "license": f"page {i}"} for i in range(1001)
    ]
    path = write_jsonl(tmp_path / "a.jsonl", rows)
    with pytest.raises(DataError, match=r"line 1001: .*more than 1,000 different.*--licence 'a\."):
        licences_in(path)
    assert len(licences_in(write_jsonl(path, rows[:1000]))[0]) == 1000


@pytest.mark.parametrize(
    ("value", "name"),
    [(float("nan"), ""), (None, ""), (3, "3"), ("x" * 500, "x" * (LONGEST - 1) + "…")],
)
def test_any_cell_is_a_name_or_nothing(value: object, name: str) -> None:
    assert as_licence(value) == name


@pytest.mark.parametrize(
    ("content", "licence"),
    [
        (b"MIT License\n\nCopyright", "MIT License"),
        (APACHE.encode(), "Apache License Version 2.0, January 2004"),
        (b"# CC0\r\n\r\nmore", "CC0"),
        (b"/* SPDX-License-Identifier: CC-BY-4.0 */", "CC-BY-4.0"),
        (b"Anything\nSPDX-License-Identifier: MIT OR Apache-2.0\n", "MIT OR Apache-2.0"),
        (b"\xff\xfe bytes", "\ufffd\ufffd bytes"),
        (b"", ""),
    ],
)
def test_a_file_beside_states_it_by_its_identifier_or_first_lines(
    tmp_path: Path, content: bytes, licence: str
) -> None:
    (tmp_path / "LICENSE").write_bytes(content)
    assert licence_beside(tmp_path / "a.txt") == (licence, "LICENSE")


def test_the_file_of_one_text_comes_before_that_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "LICENCE.md").write_text("CC0", encoding="utf-8")
    (tmp_path / "a.txt.license").write_text("SPDX-License-Identifier: MIT", encoding="utf-8")
    assert licence_beside(tmp_path / "a.txt") == ("MIT", "a.txt.license")
    assert licence_beside(tmp_path / "b.txt") == ("CC0", "LICENCE.md")
    assert licence_beside(tmp_path / "LICENCE.md") == ("", "")  # not its own
    assert licence_beside(tmp_path / "deep" / "c.txt") == ("", "")


def test_what_the_user_says_comes_first_and_the_last_pattern_counts(tmp_path: Path) -> None:
    (tmp_path / "LICENSE").write_text("CC0", encoding="utf-8")
    path = str(tmp_path / "wiki.jsonl")
    assert licence_of(path, "MIT", Data()) == ("MIT", "its column")
    assert licence_of(path, "", Data()) == ("CC0", "file LICENSE")
    data = Data(licences=("*=one", "wiki*=two", "news/*=three"))
    assert licence_of(path, "MIT", data) == ("two", "--licence wiki*")
    assert licence_of("hdfs://host/a.txt", "", Data()) == (NOT_STATED, "")
    for wrong in ("MIT", "=MIT", "wiki="):
        with pytest.raises(RecipeError, match="is not GLOB=LICENCE"):
            local_text(Data(corpus=(str(tmp_path / "LICENSE"),), licences=(wrong,)))


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ("/data/wiki/a.jsonl", True),
        ("/data/wiki", True),
        ("/data/wiki/", True),
        ("wiki", True),
        ("./wiki/a.jsonl", True),
        ("a.jsonl", True),
        ("*.jsonl", True),
        ("wik?/*", True),
        ("/data/*", True),
        ("/*/a.jsonl", True),
        ("iki", False),
        ("/wiki", False),
        ("a.json", False),
        ("A.jsonl", False),
        ("", False),
        ("/", False),
    ],
)
def test_patterns_name_a_path_its_end_or_a_folder(pattern: str, fits: bool) -> None:
    assert path_matches(pattern, "/data/wiki/a.jsonl") == fits


def test_a_path_with_the_signs_of_patterns_names_itself() -> None:
    for odd in ("/data/a[1].txt", "/data/a *?.txt", "/data/[", "/data/é\n"):
        assert path_matches(odd, odd) and path_matches(odd, f"{odd}/b")
    assert not path_matches("/data/a[1].txt", "/data/a[2].txt")


@given(st.text("ab/*", min_size=1, max_size=6), st.text("ab/", max_size=8))
def test_a_pattern_fits_an_end_of_the_path_or_of_a_folder_above(pattern: str, rest: str) -> None:
    name = f"/{rest}"
    plain = pattern.rstrip("/")
    ends = [name, *(name[at + 1 :] for at, sign in enumerate(name) if sign == "/")]
    above = [end[:at] for end in ends for at, sign in enumerate(end) if sign == "/"]
    literal = name == plain or name.startswith(f"{plain}/")
    wanted = any(fnmatchcase(one, plain) for one in (*ends, *above))
    if plain.startswith("/"):
        starts = [name, *(name[:at] for at, sign in enumerate(name) if sign == "/" and at)]
        wanted = any(fnmatchcase(one, plain) for one in starts)
    assert path_matches(pattern, name) == (bool(plain) and (literal or wanted))


def test_rows_are_left_out_by_licence_in_small_or_capital_letters() -> None:
    rule = RowRule(("cc-by-nc*", NOT_STATED))
    assert rule.leaves_out("CC-BY-NC-4.0") and rule.leaves_out("")
    assert not rule.leaves_out("CC-BY-4.0")
    assert not RowRule(("gpl*",), otherwise="MIT").leaves_out("")


def write(folder: Path) -> Data:
    """A corpus of files in two folders, with the same name in both, under several licences."""
    for name in ("wiki", "news"):
        (folder / name).mkdir()
        rows: list[dict[str, object]] = [
            {"text": f"{name} text {i}", "license": ("CC0-1.0", "CC-BY-NC-4.0", None)[i % 3]}
            for i in range(6)
        ]
        write_jsonl(folder / name / "a.jsonl", rows)
        (folder / name / "b.txt").write_text(f"a book of {name}", encoding="utf-8")
    (folder / "news" / "LICENSE").write_text("CC-BY-NC-4.0", encoding="utf-8")
    return Data(corpus=(str(folder),))


def left(data: Data, *without: str) -> tuple[list[str], list[str]]:
    """The files that stay, and those that are left out, by folder and name."""
    text = local_text(Data(corpus=data.corpus, without=without))
    gone = [Path(one.path) for one in text.left_out]
    return _short(text.files), _short(gone)


def _short(paths: object) -> list[str]:
    return ["/".join(path.parts[-2:]) for path in paths]  # type: ignore[attr-defined]


def test_files_are_left_out_by_path_folder_and_glob(tmp_path: Path) -> None:
    data = write(tmp_path)
    everything = ["news/a.jsonl", "news/b.txt", "wiki/a.jsonl", "wiki/b.txt"]
    assert left(data) == (everything, [])
    for pattern in ("wiki", str(tmp_path / "wiki"), "wiki/*"):
        assert left(data, pattern) == (everything[:2], everything[2:])
    assert left(data, "wiki/a.jsonl", "*.txt") == (["news/a.jsonl"], everything[1:])
    with pytest.raises(RecipeError, match=r"no file of the corpus is called 'a\.json' .did you"):
        left(data, "a.json")
    with pytest.raises(RecipeError, match="leaves nothing of the corpus"):
        left(data, "*")


def test_licences_leave_out_whole_texts_and_rows_of_tables(tmp_path: Path) -> None:
    data = write(tmp_path)
    text = local_text(Data(corpus=data.corpus, without=("licence:cc-by-nc*",)))
    assert _short(text.files) == ["news/a.jsonl", "wiki/a.jsonl", "wiki/b.txt"]
    assert [one.pattern for one in text.left_out] == ["licence:cc-by-nc*"]
    kept = []
    for number, path in enumerate(text.files):
        rows = RowLicences(rule=text.rule(number))
        kept += [(path.parent.name, one.text) for one in read_documents(path, licences=rows)]
    numbers = {"news": (0, 3), "wiki": (0, 2, 3, 5)}  # rows of news without one have the folder's
    wanted = [(name, f"{name} text {i}") for name in numbers for i in numbers[name]]
    assert kept == [*wanted, ("wiki", "a book of wiki")]


def test_a_licence_that_is_given_decides_for_the_whole_table(tmp_path: Path) -> None:
    data = write(tmp_path)
    given_ones = ("news/a.jsonl=MIT", "wiki/a.jsonl=CC-BY-NC-4.0")
    data = Data(corpus=data.corpus, without=("licence:CC-BY-NC*",), licences=given_ones)
    text = local_text(data)
    assert _short(text.files) == ["news/a.jsonl", "wiki/b.txt"]
    assert not text.rule(0).leaves_out("CC-BY-NC-4.0")


def test_a_key_changes_with_what_is_left_out_alone(tmp_path: Path) -> None:
    data = write(tmp_path)
    settings = [
        json.dumps(local_text(Data(corpus=data.corpus, without=without)).settings)
        for without in ((), ("licence:x",), ("licence:y",), ("wiki",))
    ]
    assert settings[0] == settings[3] and len(set(settings)) == 3
