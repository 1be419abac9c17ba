"""The tasks of laptop.py and what is cut out of them and of the corpus, always in the same way."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from tasklm.corpus.sources import NoTextColumn, find_files, read_documents
from tasklm.corpus.streams import Source
from tasklm.errors import RunError
from tasklm.recipe.data_sections import Data
from tasklm.storage.files import write_bytes
from tasklm.tasks.examples import Splits
from tasklm.tasks.readers.splits import read_splits, resolved

SPLITS = ("train", "dev", "test")
METRICS = {  # task → the metric that it is usually judged by
    "acl_arc": "macro_f1",
    "agnews": "macro_f1",
    "amazon_helpfulness_lite": "macro_f1",
    "chemprot": "micro_f1",
    "scierc_rel": "macro_f1",
    "hyperpartisan_clean": "macro_f1",
    "imdb": "macro_f1",
    "masakhanews_yor": "weighted_f1",
    "nicta_piboso": "micro_f1",
    "glue_cola": "matthews",
    "glue_sst2": "accuracy",
    "glue_rte": "accuracy",
    "glue_mrpc": "f1",
    "glue_stsb": "spearman",
    "sick_entail": "accuracy",
    "sick_relate": "pearson",
    "conll2003_ner": "entity_f1",
    "wnut17_ner": "entity_f1",
    "ncbi_disease_ner": "entity_f1",
    "conll2000_chunk": "entity_f1",
    "ptb_sample_pos": "accuracy",
    "race_middle": "accuracy",
}


def spread(total: int, wanted: int) -> list[int]:
    """At most so many places out of `total`, evenly spread."""
    wanted = min(wanted, total)
    return [place * total // wanted for place in range(wanted)]


def split_data(folder: Path) -> Data:
    """The files of a prepared task, with the kind of task that they show."""
    return resolved(Data(**{split: str(_file(folder, split)) for split in SPLITS}, leaks="drop"))


def read_task(folder: Path) -> tuple[Data, Splits]:
    """The files and examples of a prepared task; train is without what dev and test have too."""
    data = split_data(folder)
    return data, read_splits(data)


def prepare_task(
    source: Path, folder: Path, labels: int | None, scored: int, whole: int = 0
) -> Path:
    """Writes the splits of a task as they are used, and names their folder.

    Where test has no labels, every other example of dev is cut off to be scored in its place.
    Test has at most `scored` examples, train about `labels`, the first of each class among them;
    a train with at most `whole` examples stays whole.
    """
    files = {split: _file(source, split) for split in SPLITS}
    lines = {split: _lines(file) for split, file in files.items() if file.exists()}
    if missing := {"train", "dev"} - lines.keys():
        raise RunError(f"{source} has no {' and no '.join(sorted(missing))}. Name another --data.")
    dev, test = lines["dev"], lines.get("test", [])
    if not test or json.loads(test[0]).keys() < json.loads(lines["train"][0]).keys():
        dev, test = dev[::2], dev[1::2]
    _write(_file(folder, "train"), lines["train"])
    _write(_file(folder, "dev"), dev)
    _write(_file(folder, "test"), [test[place] for place in spread(len(test), scored)])
    if labels is not None and len(lines["train"]) > whole:
        _write(_file(folder, "train"), _fewer(folder, lines["train"], labels))
    return folder


def _fewer(folder: Path, lines: Sequence[str], labels: int) -> list[str]:
    """The lines of so many of the training examples that dev and test do not have."""
    train = read_task(folder)[1].train
    first: dict[str, int] = {}
    for place, example in enumerate(train):
        if isinstance(example.label, str):
            first.setdefault(example.label, place)
    even = spread(len(train), labels)
    present = {train[place].label for place in even if isinstance(train[place].label, str)}
    places = {*even, *(place for label, place in first.items() if label not in present)}
    return [lines[train[place].line - 1] for place in sorted(places)]


def cut_corpus(corpus: Sequence[str], passages: int, file: Path) -> Path:
    """Writes evenly spread passages of a corpus to a .jsonl.gz file."""
    total = sum(1 for _ in _texts(corpus))
    wanted = set(spread(total, passages))
    chosen = (text for place, text in enumerate(_texts(corpus)) if place in wanted)
    _write(file, [json.dumps({"text": text}, ensure_ascii=False) for text in chosen])
    return file


def _texts(corpus: Sequence[str]) -> Iterator[str]:
    """The texts of all files of a corpus that have some."""
    for file in find_files(corpus):
        try:
            yield from (document.text for document in read_documents(file))
        except NoTextColumn:
            continue  # an index beside the texts


def _file(folder: Path, split: str) -> Path:
    return folder / f"{split}.jsonl.gz"


def _lines(file: Path) -> list[str]:
    with Source(file, None) as stream:
        return stream.read().decode("utf-8").rstrip("\n").split("\n")


def _write(file: Path, lines: Sequence[str]) -> None:
    content = "".join(f"{line}\n" for line in lines).encode("utf-8")
    write_bytes(file, gzip.compress(content, 9, mtime=0))
