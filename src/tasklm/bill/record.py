"""The bill of text of a run, bill.json: every file that its model comes from, with the hash of its
content, its licence, and how much of it was read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tasklm.errors import RunError
from tasklm.run_folder import MODEL, described_by, find_run
from tasklm.storage.checksums import content_of, damage_is_clear
from tasklm.storage.files import ARTEFACT, read_json, write_record

BILL = "bill.json"
FORMAT = 1
CACHE = "cache"  # before the name of the corpus, among the artefacts of a bill


@dataclass(frozen=True)
class TextPart:
    """The text of a corpus file under one licence.

    Tokens are those of the vocabulary, [CLS] and [SEP] not counted; those read are of stage 1.
    """

    licence: str
    licence_from: str  # who states it; "" if nobody does
    passages: int = 0  # that it owns: the first file with a text does
    repeats: int = 0  # left out, because the text stands before
    elsewhere: int = 0  # owned passages that stand in another file, too
    contaminated: int = 0  # left out, because they share words with dev or test
    near_copies: int = 0  # left out of the selection
    selected: int = 0
    tokens: int = 0  # of the selected passages
    tokens_read: int = 0  # by the training of the model
    tokens_read_by_run: int = 0  # by all its trainings of stage 1
    share: float = 0.0  # of all tokens that the training of the model read
    tokens_counted: int = 0  # that the first embeddings come from
    vector_passages: int = 0  # that the word vectors of the linear model come from
    stage2_texts: int = 0  # pieces of selected passages that stage 2 read without labels
    stage2_tokens: int = 0  # of these, each once

    @property
    def times_read(self) -> float:
        """How often its selected text was read, on average."""
        return self.tokens_read / self.tokens if self.tokens else 0.0


@dataclass(frozen=True)
class TextFile:
    """A file of the corpus."""

    path: str
    bytes: int
    sha256: str  # of its content as it was read; "" where it was skipped
    documents: int = 0
    empty: int = 0
    left_out: int = 0  # rows, for their licences
    skipped: bool = False  # a table without text
    parts: list[TextPart] = field(default_factory=list)


@dataclass(frozen=True)
class LabelledPart:
    """The examples of labelled data under one licence."""

    licence: str
    licence_from: str
    examples: dict[str, int] = field(default_factory=dict)  # split → used examples
    tokens: int = 0  # of the training examples
    tokens_read: int = 0
    tokens_read_by_run: int = 0
    share: float = 0.0


@dataclass(frozen=True)
class LabelledData:
    """A file or folder of labelled examples."""

    path: str
    files: list[dict[str, Any]]  # path, bytes and sha256 of each
    task: str = ""  # of several
    leaks: int = 0  # examples left out, because another split has their texts
    parts: list[LabelledPart] = field(default_factory=list)


@dataclass(frozen=True)
class Bill:
    """Everything in bill.json."""

    run: str
    tasklm: str  # version
    made_with: dict[str, Any]
    recipe: str  # TOML, with all automatic values filled in
    model: dict[str, Any]  # what is in model/, and the hashes of its weights
    totals: dict[str, int]
    selection: dict[str, Any]
    corpus: list[TextFile]
    labelled: list[LabelledData]
    others: list[dict[str, Any]]  # further files that text came from
    left_out: list[dict[str, Any]]  # files of the corpus that data.without names
    teachers: list[dict[str, Any]]
    start: dict[str, Any] | None
    network: dict[str, Any]
    artefacts: dict[str, str]  # of the run and of its corpus: the content of each
    format: int = FORMAT

    def to_dict(self) -> dict[str, Any]:
        """As in bill.json."""
        return {"format": self.format, **asdict(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Bill:
        """The bill with these values."""
        corpus = [
            TextFile(**{**one, "parts": [TextPart(**part) for part in one["parts"]]})
            for one in values["corpus"]
        ]
        labelled = [
            LabelledData(**{**one, "parts": [LabelledPart(**part) for part in one["parts"]]})
            for one in values["labelled"]
        ]
        return cls(**{**values, "corpus": corpus, "labelled": labelled})

    @property
    def tokens_read(self) -> int:
        """All tokens that stage 1 of the model read."""
        return self.totals["tokens_read"]

    def parts(self) -> Iterator[tuple[str, TextPart | LabelledPart]]:
        """The path of each source and its part, the most read first."""
        pairs: list[tuple[str, TextPart | LabelledPart]] = []
        for file in self.corpus:
            pairs += [(file.path, part) for part in file.parts]
        for data in self.labelled:
            pairs += [(data.path, own) for own in data.parts]
        yield from sorted(pairs, key=lambda pair: (-pair[1].tokens_read, pair[0]))

    def earlier(self) -> list[tuple[str, Bill]]:
        """The bills of teachers and of the run that training started from, with their titles."""
        origins = [*self.teachers, *([self.start] if self.start else [])]
        return [
            (str(one["title"]), Bill.from_dict(one["bill"])) for one in origins if one.get("bill")
        ]


def write_bill(folder: Path, bill: Bill) -> None:
    """Writes bill.json, with a checksum of its values."""
    write_record(folder / BILL, bill.to_dict())


def bill_path(where: Path) -> Path | None:
    """The bill of a run, of the model in it, or of a copy of a model or an export that has one."""
    run = find_run(where)
    places = [*([] if run is None else [described_by(run) / BILL]), where / BILL]
    return next((place for place in places if place.is_file()), None)


def read_bill(where: Path) -> Bill:
    """The bill of a run or a model; raises RunError if there is none, or only one of an earlier
    model.
    """
    path = bill_path(where)
    if path is None:
        remedy = f"Finish the run: tasklm report {where}"
        if find_run(where) is None:
            remedy = "Give the folder of a finished run, such as runs/first."
        if not where.is_dir():
            raise RunError(f"there is no folder {where}. {remedy}")
        raise RunError(f"{where} has no bill of text ({BILL}). {remedy}")
    with damage_is_clear(path):
        values = read_json(path)
        if values["format"] != FORMAT:
            raise RunError(
                f"{path} has format {values['format']}, but this version reads {FORMAT}. "
                f"Write it again: tasklm report {path.parent}"
            )
        bill = Bill.from_dict(values)
    _require_own_model(path.parent, bill)
    return bill


def _require_own_model(folder: Path, bill: Bill) -> None:
    """Refuses a bill of a run whose model was made again, from something else."""
    model = folder / MODEL
    now = content_of(model) if (model / ARTEFACT).exists() else ""
    if now and bill.artefacts.get(MODEL, now) != now:
        raise RunError(
            f"the model in {folder} is newer than its bill of text. "
            f"Finish the run: tasklm report {folder}"
        )


def bill_beside(where: Path) -> dict[str, Any] | None:
    """The values of the bill of a run or a model, if it has one."""
    return read_bill(where).to_dict() if bill_path(where) is not None else None
