"""The bill of text of an updated model: that of before, with the new files."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from tasklm.bill.record import Bill, LabelledData, LabelledPart, read_bill, write_bill
from tasklm.corpus.corpus_text import licence_of
from tasklm.export.publishing import published
from tasklm.recipe.toml import dump, without_password
from tasklm.run_folder import MODEL
from tasklm.storage.checksums import content_of, files_in
from tasklm.storage.files import ARTEFACT, file_sha256
from tasklm.storage.safe_reading import home_path
from tasklm.updating.reading import is_from
from tasklm.updating.work import Work

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
    return replace(
        before,
        run=f"{work.base.run.resolve().name}, update {work.number}",
        recipe=dump(without_password(work.recipe)),
        model=model,
        labelled=[*_earlier(before, work), *_new(work)],
        artefacts=artefacts,
    )


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
