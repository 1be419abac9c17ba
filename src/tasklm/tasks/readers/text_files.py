"""A folder with one sub-folder of text files per label."""

from __future__ import annotations

from pathlib import Path

from tasklm.corpus.sources import PLAIN, require_name
from tasklm.corpus.tables import kind_of, read_lines
from tasklm.errors import DataError
from tasklm.tasks.examples import Example


def read_folder(folder: Path, labelled: bool = True) -> tuple[list[Example], list[str]]:
    """The texts of a folder's files, labelled by their sub-folders, and a note."""
    places = sorted(
        path
        for path in folder.rglob("*")
        if kind_of(path) in PLAIN and not path.name.startswith(".")
    )
    examples = []
    for path in places:
        require_name(path)
        if labelled and path.parent.parent != folder:
            raise DataError(
                "a text file is outside the labels' folders",
                file=path,
                line=1,
                remedy="Put text files into one sub-folder per label: FOLDER/LABEL/FILE.txt.",
            )
        text = "".join(read_lines(path))
        if text.strip() or not labelled:
            label = path.parent.name if labelled else None
            examples.append(Example((text,), label, str(path), 1))
    if not examples:
        raise DataError(
            "the folder contains no text files",
            file=folder,
            remedy="Put .txt files into one sub-folder per label, or name a table.",
        )
    return examples, ["texts: the files, labels: the names of their folders"]
