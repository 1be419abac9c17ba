"""The bill of text of an updated model: that of before, with the new files."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from tasklm.bill.record import (
    Bill,
    LabelledData,
    LabelledPart,
    TextFile,
    TextPart,
    read_bill,
    write_bill,
)
from tasklm.corpus.corpus_text import licence_of
from tasklm.export.publishing import published
from tasklm.recipe.toml import dump, without_password
from tasklm.run_folder import MODEL
from tasklm.storage.checksums import content_of, files_in
from tasklm.storage.files import ARTEFACT, file_sha256, read_json
from tasklm.storage.safe_reading import home_path
from tasklm.updating.reading import is_from
from tasklm.updating.work import Work

Source = TypeVar("Source", TextFile, LabelledData)
BILL_FILES = (ARTEFACT, "bill.json")
LEARNT = (".safetensors", ".npy")  # files of a model that hold what was learnt


def keep_bill(work: Work) -> None:
    """Writes the bill beside the update and, without the places of files, into its model."""
    bill = bill_of(work)
    write_bill(work.folder, bill)
    write_bill(work.folder / MODEL, published(bill))


def bill_of(work: Work) -> Bill:
    """The bill of the model of an update."""
    before = read_bill(work.base.model)
    model = {**before.model, "update": work.number, **_weights(work.folder / MODEL)}
    artefacts = {
        record.parent.name: content_of(record.parent)
        for record in sorted(work.folder.glob(f"*/{ARTEFACT}"))
        if not record.parent.name.endswith(".partial")
    }
    texts = _texts(work)
    read = sum(part.tokens_read for text in texts for part in text.parts)
    totals = dict(before.totals)
    for name in ("tokens_read", "tokens_read_of_text"):
        totals[name] += read
    totals["passages"] += sum(part.passages for text in texts for part in text.parts)
    totals["selected"] += sum(part.selected for text in texts for part in text.parts)
    total = totals["tokens_read"]
    return replace(
        before,
        totals=totals,
        run=f"{work.base.run.resolve().name}, update {work.number}",
        recipe=dump(without_password(work.recipe)),
        model=model,
        corpus=[_with_shares(text, total) for text in (*before.corpus, *texts)],
        labelled=[_with_shares(one, total) for one in (*_earlier(before, work), *_new(work))],
        artefacts=artefacts,
    )


def _with_shares(source: Source, total: int) -> Source:
    """The source with the share of each part in all tokens that stage 1 has read."""
    parts: Any = [
        replace(part, share=part.tokens_read / total if total else 0.0) for part in source.parts
    ]
    return replace(source, parts=parts)


def _texts(work: Work) -> list[TextFile]:
    """The files of new text, where a network has read them."""
    path = work.folder / "text" / "files.json"
    if not path.exists():
        return []
    return [
        TextFile(**{**one, "parts": [TextPart(**part) for part in one["parts"]]})
        for one in read_json(path)
    ]


def _earlier(before: Bill, work: Work) -> list[LabelledData]:
    """The files of before, with the examples that are still learnt from them."""
    return [
        replace(
            data,
            parts=[
                replace(part, examples=_counts(work, data.path)) if len(data.parts) == 1 else part
                for part in data.parts
            ],
        )
        for data in before.labelled
    ]


def _new(work: Work) -> list[LabelledData]:
    """The files that this update adds; stage 1 reads none of them."""
    request, data = work.request, work.recipe.data
    sources = []
    for path in filter(None, (request.train, request.dev, request.test)):
        place = str(home_path(path).absolute())
        licence, by = licence_of(place, "", data)
        files: list[dict[str, Any]] = [
            {"path": str(Path(one.path).absolute()), "bytes": one.bytes, "sha256": one.sha256}
            for one in work.inputs.of(home_path(path))
        ]
        part = LabelledPart(licence, by, examples=_counts(work, path))
        leaks = work.grounds.splits.leaks[path]
        sources.append(LabelledData(place, files, leaks=leaks, parts=[part]))
    return sources


def _counts(work: Work, path: str) -> dict[str, int]:
    """The examples of a file by split."""
    counts = Counter(
        split
        for split, examples in work.grounds.splits.named().items()
        for one in examples
        if is_from(one, path)
    )
    return dict(counts)


def _weights(folder: Path) -> dict[str, Any]:
    """The hashes of a model's files, and one of all that was learnt."""
    files = {
        path.relative_to(folder).as_posix(): file_sha256(path)
        for path in files_in(folder, leave_out=BILL_FILES)
    }
    learnt = [f"{name} {files[name]}\n" for name in sorted(files) if name.endswith(LEARNT)]
    return {"files": files, "sha256": hashlib.sha256("".join(learnt).encode()).hexdigest()}
