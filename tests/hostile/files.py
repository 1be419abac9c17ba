"""Files of every format and kind, whole and mutated, and what reads them."""

from __future__ import annotations

import gzip
import json
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from tasklm.corpus.sources import find_files, read_documents
from tasklm.errors import TaskLMError
from tasklm.evaluate.reranking import read_candidates
from tasklm.recipe.data_sections import Data, Kind
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import dump, load
from tasklm.storage.files import digest
from tasklm.tasks.audit import audit_splits
from tasklm.tasks.base import TASKS
from tasklm.tasks.examples import Example
from tasklm.tasks.readers.splits import read_splits, resolved

CORPUS, RECIPE, LISTS = "corpus", "recipe", "lists"  # what is no task
SNIPPETS = [
    rb"\ud800",
    rb'"\ud83d"',
    rb'["a\udfff"]',
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"caf\xe9",
    b"\0",
    b"9" * 5000,
    b"1" + b"0" * 400,
    b"-1" + b"0" * 400,
    b"1e999",
    b"-1e308",
    b"1e308",
    b"NaN",
    b"Infinity",
    b"[" * 5000,
    b'{"a":' * 3000,
    b"[" * 90 + b"]" * 90,
    b'"',
    b'""',
    b"\t",
    b"\r\n",
    b"\n\n",
    b"\r",
    b",",
    b";",
    b"|",
    b"\xef\xbb\xbf",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b"-1",
    b"0",
    b"2.5",
    b"#",
    b"_",
    b"-DOCSTART- O\n",
    "\u2028".encode(),
    "é😀".encode(),
    b"=",
    b"\\",
    b'["a", "b"]',
    (b'{"text": ["a"], "answer_start": [0]}'),
    b"x" * 5000,
]


@dataclass(frozen=True)
class Sample:
    """Something to read: one file, or the files of a folder."""

    name: str  # of what is named to the reader
    kind: str  # of its task, or what it is in place of a task
    files: tuple[tuple[str, bytes], ...]  # path inside the scratch folder, content

    def write(self, folder: Path) -> Path:
        """Writes the files into a folder; returns what is to be read."""
        for name, content in self.files:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return folder / self.name


def one(name: str, kind: str, content: bytes | str) -> Sample:
    """A sample of one file."""
    return Sample(
        name, kind, ((name, content if isinstance(content, bytes) else content.encode()),)
    )


def jsonl(rows: list[dict[str, Any]]) -> bytes:
    """Rows as JSON lines."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def parquet(rows: list[dict[str, Any]]) -> bytes:
    """Rows as a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return bytes(sink.getvalue())


def arrow(rows: list[dict[str, Any]]) -> bytes:
    """Rows as a stream of Arrow's batches."""
    table, sink = pa.Table.from_pylist(rows), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def samples() -> list[Sample]:
    """A whole sample of every format, for every kind that has it."""
    texts = [
        f"the cat sees {thing} number {number} ."
        for number, thing in enumerate(["music", "water", "a road", "a ball"] * 3)
    ]
    classes = [{"text": text, "label": "yes" if "a " in text else "no"} for text in texts]
    sets = [{"text": text, "labels": ["cat", "road"][: 1 + ("road" in text)]} for text in texts]
    scores = [{"sentence1": text, "sentence2": "a dog", "score": len(text) / 7} for text in texts]
    choices = [
        {
            "article": text,
            "question": "what ?",
            "options": ["music", "road"],
            "answer": "AB"["road" in text],
        }
        for text in texts
    ]
    tags = [
        {"tokens": text.split(), "tags": ["O", "B-A"] + ["O"] * (len(text.split()) - 2)}
        for text in texts
    ]
    spans = [
        {"question": "who ?", "context": text, "answers": {"text": ["cat"], "answer_start": [4]}}
        for text in texts
    ]
    arcs = {"heads": [2, 3, 0], "deprels": ["det", "nsubj", "root"]}
    trees = [{"tokens": ["a", f"cat{number}", "sees"], **arcs} for number in range(len(texts))]
    csv = "text,label\n" + "".join(f'"{row["text"]}",{row["label"]}\n' for row in classes)
    columns = "\n".join(
        "".join(f"{w} {t}\n" for w, t in zip(row["tokens"], row["tags"], strict=True))
        for row in tags
    )
    words = "# sent\n1\ta\t_\tDET\t_\t_\t2\tdet\t_\t_\n2\tcat{}\t_\tNOUN\t_\t_\t3\tnsubj\t_\t_\n3\tsees\t_\tVERB\t_\t_\t0\troot\t_\t_\n\n"
    conllu = "".join(words.format(number) for number in range(len(texts)))
    paragraphs = [
        {
            "context": row["context"],
            "qas": [{"question": "who ?", "answers": [{"text": "cat", "answer_start": 4}]}],
        }
        for row in spans
    ]
    race = {
        "article": "a",
        "questions": texts,
        "options": [["a", "b"] for _ in texts],
        "answers": ["A", "B"] * (len(texts) // 2),
    }
    cola = "".join(f"x\t{number % 2}\t\t{text}\n" for number, text in enumerate(texts))
    pairs = "index\tsentence1\tsentence2\tlabel\n" + "".join(
        f"{n}\t{text}\ta dog\t{n % 2}\n" for n, text in enumerate(texts)
    )
    info = {
        "features": {
            "text": {"_type": "Value"},
            "label": {"_type": "ClassLabel", "names": ["no", "yes"]},
        }
    }
    numbered = [{"text": row["text"], "label": number % 2} for number, row in enumerate(classes)]
    dataset = {
        "state.json": b'{"_data_files": [{"filename": "data.arrow"}]}',
        "dataset_info.json": json.dumps(info).encode(),
    }
    lists = [
        {"candidates": [{"text": text, "score": -1.5}, {"text": "b", "score": -2}], "answer": 0}
        for text in texts
    ]
    return [
        one("classes.csv", "classify", csv),
        one("classes.tsv", "classify", csv.replace('",', "\t").replace('"', "").replace(",", "\t")),
        one("classes.jsonl", "classify", jsonl(classes)),
        one("classes.parquet", "classify", parquet(classes)),
        one("classes.csv.gz", "classify", gzip.compress(csv.encode())),
        one("cola.tsv", "classify", cola),
        one("classes.jsonl.zst", "classify", zstandard.compress(jsonl(classes))),
        one("mrpc.tsv", "classify", pairs),
        Sample(
            "texts",
            "classify",
            tuple(
                (f"texts/{row['label']}/{n}.txt", row["text"].encode())
                for n, row in enumerate(classes)
            ),
        ),
        Sample(
            "set",
            "classify",
            (
                ("set/data.arrow", arrow(numbered)),
                *((f"set/{name}", part) for name, part in dataset.items()),
            ),
        ),
        one("sets.jsonl", "multilabel", jsonl(sets)),
        one("sets.parquet", "multilabel", parquet(sets)),
        one(
            "sets.csv",
            "multilabel",
            "text,labels\n" + "".join(f"{row['text']},{'|'.join(row['labels'])}\n" for row in sets),
        ),
        one("scores.jsonl", "regress", jsonl(scores)),
        one("scores.parquet", "regress", parquet(scores)),
        one("choices.jsonl", "choice", jsonl(choices)),
        one("choices.parquet", "choice", parquet(choices)),
        one("race.json", "choice", json.dumps(race)),
        one("tags.conll", "tag", columns),
        one("tags.jsonl", "tag", jsonl(tags)),
        one("tags.parquet", "tag", parquet(tags)),
        one("spans.jsonl", "span", jsonl(spans)),
        one("spans.parquet", "span", parquet(spans)),
        one("squad.json", "span", json.dumps({"data": [{"title": "a", "paragraphs": paragraphs}]})),
        one("trees.conllu", "parse", conllu),
        one("trees.jsonl", "parse", jsonl(trees)),
        one("trees.parquet", "parse", parquet(trees)),
        one("corpus.txt", CORPUS, "\n\n".join(texts)),
        one("corpus.md.gz", CORPUS, gzip.compress("\n\n".join(texts).encode())),
        one("corpus.jsonl", CORPUS, jsonl(classes)),
        one("corpus.csv", CORPUS, csv),
        one("corpus.parquet", CORPUS, parquet(classes)),
        one("recipe.toml", RECIPE, dump(Recipe())),
        one("lists.jsonl", LISTS, jsonl(lists)),
    ]


def mutated(sample: Sample, draw: random.Random) -> Sample:
    """A sample with one to four changes to one of its files."""
    place = draw.randrange(len(sample.files))
    name, content = sample.files[place]
    packed = {
        ".gz": (gzip.decompress, gzip.compress),
        ".zst": (zstandard.decompress, zstandard.compress),
    }.get(Path(name).suffix)
    inside = packed is not None and draw.random() < 0.7  # else the compressed bytes are changed
    content = packed[0](content) if packed and inside else content
    for _ in range(draw.randint(1, 4)):
        content = _changed(content, draw)
    content = packed[1](content) if packed and inside else content
    return Sample(
        sample.name,
        sample.kind,
        (*sample.files[:place], (name, content), *sample.files[place + 1 :]),
    )


def _changed(content: bytes, draw: random.Random) -> bytes:
    at, size = draw.randint(0, len(content)), draw.choice([1, 1, 4, 30])
    snippet = draw.choice(SNIPPETS)
    values = list(re.finditer(rb'"[^"\n]*"|-?\d+(?:\.\d+)?', content))
    match draw.randrange(8):
        case 0:
            return content[:at] + snippet + content[at:]
        case 1 | 2 if values:  # a value of JSON, CSV or TOML as a whole
            value = draw.choice(values)
            return content[: value.start()] + snippet + content[value.end() :]
        case 3:
            return content[:at] + content[at + size :]
        case 4:
            return (
                content[:at]
                + bytes(draw.randrange(256) for _ in range(size))
                + content[at + size :]
            )
        case 5:
            return content[:at]
        case 6:
            return content[:at] + content[max(0, at - 50) : at] + content[at:]
        case _:
            lines = content.split(b"\n")
            draw.shuffle(lines)
            return b"\n".join(lines)


def outcome(sample: Sample, path: Path) -> str:
    """Reads a sample in all the ways in which tasklm reads such; returns "read", or "refused" where
    one of them refuses it."""
    if sample.kind == CORPUS:
        ways = [
            lambda: [
                document.text.encode()
                for file in find_files([str(path)])
                for document in read_documents(file)
            ]
        ]
    elif sample.kind == RECIPE:
        ways = [lambda: [dump(load(path)).encode()]]
    elif sample.kind == LISTS:
        ways = [lambda: [digest(each.texts).encode() for each in read_candidates(path)]]
    else:
        ways = [
            lambda: _checked(path, "auto"),
            lambda: _checked(path, sample.kind),
            lambda: _unlabelled(path, sample.kind),
        ]
    ends = set()
    for way in ways:
        try:
            way()
            ends.add("read")
        except TaskLMError as error:
            assert max(map(len, str(error).splitlines())) < 1000, "an error has to be short"
            ends.add("refused")
    return "refused" if "refused" in ends else "read"


def _checked(path: Path, kind: str) -> list[bytes]:
    """Does what `tasklm check` does with labelled data."""
    data = resolved(Data(train=str(path), kind=kind))
    splits = read_splits(data)
    task = TASKS.get(data.kind).from_examples(splits.train, Kind())
    findings = [*task.audit(splits), *audit_splits(splits, data)]
    described = json.dumps(task.to_dict(), ensure_ascii=False, allow_nan=False).encode()
    TASKS.get(data.kind).from_dict(json.loads(described))
    return [
        described,
        *(finding.message.encode() for finding in findings),
        *map(_written, splits.train),
    ]


def _unlabelled(path: Path, kind: str) -> list[bytes]:
    return [_written(example) for example in TASKS.get(kind).read(path, Data(), labelled=False)[0]]


def _written(example: Example) -> bytes:
    """An example as files have it: all its texts must be such as can be written."""
    return json.dumps(
        [example.texts, example.label, example.words, example.options], ensure_ascii=False
    ).encode()
