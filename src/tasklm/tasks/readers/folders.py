"""Folders with the splits of a data set, and tables of other layouts: GLUE's TSV files and Hugging
Face's datasets on disk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from tasklm.corpus.streams import Watch
from tasklm.corpus.tables import TABLES, Row, kind_of, places_of, read_lines, read_rows
from tasklm.errors import DataError
from tasklm.storage.safe_reading import read_json_file
from tasklm.tasks.examples import first_few

COLUMNS = (".conllu", ".conll", ".bio", ".iob", ".iob2")  # words in columns, a word per line
COLA = ("source", "label", "mark", "sentence")  # CoLA's files have no header
GLUE_LABELS = ("label", "gold_label", "is_duplicate", "quality", "score")
_GLUE_HEADERS = (
    {"index", "sentence1", "sentence2"},
    {"index", "question", "sentence"},
    {"qid1", "qid2", "question1", "question2"},
    {"id", "question1", "question2"},
    {"#1 string", "#2 string"},
    {"index", "sentence"},
)
_SPLIT = re.compile(r"(train|training|dev|valid|validation|val|test)(?:[-_.].*)?", re.IGNORECASE)
_DEV = ("dev", "valid", "validation", "val")
_SPLIT_OF = {"training": "train", **dict.fromkeys(_DEV, "dev")}
_PEEK = 100  # rows that are searched for labels
_SAVE_AGAIN = "Save the dataset again with save_to_disk."
_ONE_FILE = "Name the files themselves: data.train, data.dev, data.test."


def split_name(name: str) -> str:
    """The split that a file name stands for: train, dev or test, `…_mismatched` for MNLI's second
    sets; "" for other names.
    """
    match = _SPLIT.fullmatch(name)
    if not match:
        return ""
    word = match.group(1).lower()
    split = _SPLIT_OF.get(word, word)
    if "mismatched" in name.lower():
        split += "_mismatched"
    return split


def split_files(folder: Path) -> dict[str, Path]:
    """The splits in a folder: name → file, or folder of a dataset. A test set without labels is
    called "unlabelled".

    Known are Hugging Face's datasets on disk (dataset_dict.json, or one dataset, which is taken for
    train), and files or folders called train, dev (valid, validation, val) and test, such as
    GLUE's, whose MNLI also has "dev_mismatched". Empty where there are none.
    """
    if (folder / "dataset_dict.json").is_file():
        names = _plain_names(
            _json(folder / "dataset_dict.json").get("splits", []), folder / "dataset_dict.json"
        )
        return _named([(split_name(name), name, folder / name) for name in names])
    if is_dataset(folder):
        return {"train": folder}
    entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    files = [path for path in entries if path.is_file() and kind_of(path) in TABLES + COLUMNS]
    splits = _named([(split_name(path.name), path.name.partition(".")[0], path) for path in files])
    if "train" not in splits:
        folders = {
            split_name(path.name): path
            for path in entries
            if path.is_dir() and split_name(path.name) == path.name.lower()
        }
        if "train" in folders and len(folders) > 1:
            return folders
    return splits


def _named(entries: Sequence[tuple[str, str, Path]]) -> dict[str, Path]:
    """Maps split → path from (split, name, path); if several match a split, the one with exactly
    its name.
    """
    splits: dict[str, Path] = {}
    for split in dict.fromkeys(split for split, _, _ in entries if split):
        own_names = _DEV if split == "dev" else (split,)
        paths = [path for this, _, path in entries if this == split]
        exact = [
            path for this, name, path in entries if this == split and name.lower() in own_names
        ]
        if len(paths) > 1 and len(exact) != 1:
            names = first_few([path.name for path in paths], 5)
            raise DataError(
                f"several files could be {split}: {names}", file=paths[0].parent, remedy=_ONE_FILE
            )
        path = (exact or paths)[0]
        if split.startswith("test") and not _has_labels(path):
            split = split.replace("test", "unlabelled")
        splits[split] = path
    return splits


def _has_labels(path: Path) -> bool:
    """Whether a test set has labels: GLUE's TSV files have no column for them, its datasets have -1
    in each row.
    """
    if kind_of(path) == ".tsv" and (header := _glue_header(path)) is not None:
        return any(name.lower() in GLUE_LABELS for name in header)
    if not is_dataset(path):
        return True
    labels = [name for name, feature in _features(path).items() if _is_class(feature)]
    if not labels:
        return True
    rows = islice(table_rows(path, labels), _PEEK)
    return any(any(row.values[name] is not None for name in labels) for row in rows)


def is_dataset(folder: Path) -> bool:
    """Whether a folder is one dataset as Hugging Face's `save_to_disk` writes it."""
    return (
        folder.is_dir() and (folder / "dataset_info.json").is_file() and any(folder.glob("*.arrow"))
    )


def table_rows(
    path: Path,
    columns: Sequence[str] | None = None,
    *,
    left_out: list[int] | None = None,
    watch: Watch | None = None,
) -> Iterator[Row]:
    """Yields the rows of a table, as `read_rows`, or of GLUE's TSV files or a Hugging Face dataset,
    classes by their names.

    GLUE's QQP has lines that are cut short: they raise, or, if `left_out` is given, are skipped and
    their numbers added to it. `watch` gets the bytes of a plain table.
    """
    if path.is_dir():
        return _dataset_rows(path, columns)
    if kind_of(path) == ".tsv" and (header := _glue_header(path)) is not None:
        return _glue_rows(path, header, columns, left_out)
    return read_rows(path, columns, watch=watch)


def _fields(line: str) -> list[str]:
    return line.rstrip("\r\n").split("\t")


def _glue_header(path: Path) -> list[str] | None:
    """The columns of a TSV file of GLUE's, or None for other files."""
    first = _fields(next(read_lines(path), ""))
    if len(first) == 4 and first[1] in ("0", "1") and first[2] in ("", "*"):
        return list(COLA)
    lower = {name.strip().lower() for name in first}
    if not any(known <= lower for known in _GLUE_HEADERS):
        return None
    return [name.strip() for name in first]


def _glue_rows(
    path: Path, header: list[str], columns: Sequence[str] | None, left_out: list[int] | None
) -> Iterator[Row]:
    """Yields the rows; quotes are plain text."""
    wanted = places_of(path, header, columns)
    for number, line in enumerate(read_lines(path), 1):
        fields = _fields(line)
        if (number == 1 and tuple(header) != COLA) or fields == [""]:
            continue
        if len(fields) == len(header):
            yield Row(number, {name: fields[place] for name, place in wanted.items()})
        elif left_out is not None:
            left_out.append(number)
        else:
            raise DataError(
                f"the row has {len(fields)} fields, but the header has {len(header)}",
                file=path,
                line=number,
                remedy="Delete the line, or join it with the next if that is its continuation.",
            )


def _json(path: Path) -> dict[str, Any]:
    try:
        values = read_json_file(path)
    except (OSError, ValueError) as error:
        raise DataError(f"it cannot be read ({error})", file=path, remedy=_SAVE_AGAIN) from None
    if not isinstance(values, dict):
        raise DataError("it is not a JSON object", file=path, remedy=_SAVE_AGAIN)
    return values


def _features(folder: Path) -> dict[str, Any]:
    features = _json(folder / "dataset_info.json").get("features") or {}
    if not isinstance(features, dict):
        raise DataError(
            "its features are not an object", file=folder / "dataset_info.json", remedy=_SAVE_AGAIN
        )
    return features


def _is_class(feature: Any) -> bool:
    if not isinstance(feature, Mapping) or feature.get("_type") != "ClassLabel":
        return False
    names = feature.get("names")
    return isinstance(names, list) and bool(names) and all(isinstance(name, str) for name in names)


def _dataset_rows(folder: Path, columns: Sequence[str] | None) -> Iterator[Row]:
    """Yields the rows of a dataset on disk, with their numbers from 1 on."""
    from tasklm.corpus.arrow_rows import stream_values  # here: importing Arrow takes a while

    if not is_dataset(folder):
        raise DataError(
            "the folder is not a dataset: it has no dataset_info.json with *.arrow files",
            file=folder,
            remedy="Name a file, or another folder.",
        )
    features, number = _features(folder), 0
    for file in _arrow_files(folder):
        pick = partial(_pick, folder, columns=columns)
        for values in stream_values(file, pick, _SAVE_AGAIN):
            number += 1
            yield Row(
                number,
                {name: _named_classes(value, features.get(name)) for name, value in values.items()},
            )
    if not number:
        raise DataError(
            "the dataset has no rows", file=folder, remedy="Save it again with save_to_disk."
        )


def _pick(folder: Path, names: Sequence[str], *, columns: Sequence[str] | None) -> list[str]:
    return list(places_of(folder, names, columns))


def _arrow_files(folder: Path) -> list[Path]:
    """The dataset's files in the order of state.json."""
    if not (folder / "state.json").is_file():
        return sorted(folder.glob("*.arrow"))
    entries = _json(folder / "state.json").get("_data_files", [])
    files = None
    if isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries):
        files = [entry.get("filename") for entry in entries]
    return [folder / name for name in _plain_names(files, folder / "state.json")]


def _plain_names(names: Any, path: Path) -> list[str]:
    """The names of files or folders listed in a file beside them; raises DataError for invalid
    names.
    """
    if not isinstance(names, list) or not all(
        isinstance(name, str) and name not in ("", "..") and "/" not in name for name in names
    ):
        raise DataError(
            "it does not list the names of the files beside it", file=path, remedy=_SAVE_AGAIN
        )
    return names


def _named_classes(value: Any, feature: Any) -> Any:
    """A cell with names in place of the numbers of classes; None for -1, which stands for "not
    known".
    """
    if isinstance(feature, list) and feature:  # how older versions write a list's feature
        feature = {"feature": feature[0]}
    if _is_class(feature) and isinstance(value, int):
        names = feature["names"]
        return names[value] if 0 <= value < len(names) else None
    if isinstance(value, list) and isinstance(feature, Mapping) and "feature" in feature:
        return [_named_classes(item, feature["feature"]) for item in value]
    if isinstance(value, dict) and isinstance(feature, Mapping):
        inner = feature.get("feature", feature)
        if not isinstance(inner, Mapping):
            inner = {}
        return {name: _named_items(item, inner.get(name)) for name, item in value.items()}
    return value


def _named_items(value: Any, feature: Any) -> Any:
    """As `_named_classes`; a list in a sequence of records has the feature of its items."""
    if isinstance(value, list) and _is_class(feature):
        return [_named_classes(item, feature) for item in value]
    return _named_classes(value, feature)
