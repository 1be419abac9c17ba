"""Kinds of tasks and options that nobody has thought of together: what a user does with each."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from tasklm.cli.app import app
from tasklm.errors import TaskLMError
from tests.conftest import sentences, write_jsonl
from tests.end_to_end.conftest import QUICK
from tests.end_to_end.kind_data import CASES, Case, Rows

SIZES = {"train": 60, "dev": 30, "test": 24, "asked": 5, "more": 9}
MARKED, PAIRS = "marked", "pairs"  # ways to write texts and their classes
WAYS = {"classify": ("", MARKED, PAIRS), "tag": ("", "crf", "bioes")}
OF_WAYS = {"crf": {"kind.crf": "true"}, "bioes": {"kind.scheme": "bioes"}}
BRIEF = {"train.steps": "6", "finetune.epochs": "1", "finetune.seeds": "1", "finetune.wide": "true"}
MOST = 6  # options of a combination
OPTIONS = {
    "data.share": ("1", "0.5"),
    "evaluate.ensemble": ("false", "true"),
    "finetune.average": ("0", "0.9"),
    "finetune.freeze": ("false", "true"),
    "finetune.label_smoothing": ("0", "0.1"),
    "finetune.layer_decay": ("1", "0.8"),
    "finetune.optimiser": ("adamw", "muon", "sgd"),
    "finetune.rdrop": ("0", "1"),
    "finetune.seeds": ("1", "2"),
    "finetune.soup": ("false", "true"),
    "finetune.unlabelled": ("none", "cross-view", "word-dropout", "vat"),
    "finetune.wide": ("true", "false"),
    "model.encoder": ("bert", "modern", "albert", "roberta", "bilstm"),
    "select.method": ("bm25", "random", "bm25,influence"),
    "tokens.external_length": ("16", "32"),
    "tokens.kind": ("wordpiece", "bpe", "unigram"),
    "train.accumulate": ("1", "2"),
    "train.internal_pass": ("two", "one"),
    "train.next_sentence": ("false", "true"),
    "train.objective": ("mlm", "electra", "electric", "replace-mlm", "permutation", "two-tower"),
    "train.seeds": ("1", "2"),
    "train.steps": ("0", "6"),
}


@dataclass(frozen=True)
class Combination:
    """A kind of task, the way its data is written, and some options."""

    case: Case
    way: str
    options: dict[str, str]

    def __str__(self) -> str:
        given = " ".join(f"--{key} {value}" for key, value in self.options.items())
        return f"{self.case.kind} {self.way} {given}"


def combination(seed: int, number: int) -> Combination:
    """One of the combinations of a seed."""
    draw = random.Random(f"{seed} {number}")
    case = draw.choice(CASES)
    keys = draw.sample(sorted(OPTIONS), draw.randint(2, MOST))
    way = draw.choice(WAYS.get(case.kind, ("",)))
    return Combination(case, way, {key: draw.choice(OPTIONS[key]) for key in keys})


def ended(one: Combination, folder: Path) -> str:
    """How training and using a combination ended: "done", "refused: …" or "fault: …"."""
    files = {
        name: _write(one, folder / f"{name}{one.case.suffix}", count, seed)
        for seed, (name, count) in enumerate(SIZES.items(), 1)
    }
    corpus = [{"text": " ".join(sentences(8, 100 + number))} for number in range(150)]
    options = {
        **QUICK,
        **{key.replace("__", "."): value for key, value in one.case.options.items()},
        **BRIEF,
        **OF_WAYS.get(one.way, {}),
        **one.options,
    }
    if options.get("model.encoder") == "bilstm":  # has no others
        options |= {"model.layers": "auto", "model.heads": "auto"}
    run, model, onnx = (str(folder / name) for name in ("run", "run/model", "onnx"))
    splits = ["--dev", str(files["dev"]), "--test", str(files["test"])]
    raw = ["--corpus", str(write_jsonl(folder / "corpus.jsonl", corpus))]
    given = [word for key, value in options.items() for word in (f"--{key}", value)]
    fitted, problem = _call("fit", str(files["train"]), *splits, *raw, "--out", run, *given)
    if not fitted:
        return problem
    asked = str(files["asked"])
    first, problem = _call("predict", model, asked)
    if not first:
        return problem
    for words in (["explain", run, asked, "--top", "2"], ["update", run, "--train", files["more"]]):
        _, problem = _call(*map(str, words))
        if problem.startswith("fault"):
            return problem
    exported, problem = _call("export", str(folder / "run"), "--to", "onnx", "--out", onnx)
    if exported:
        second, problem = _call("predict", onnx, asked)
        current, _ = _call("predict", model, asked)  # an update may have replaced it
        if second and _labels(second) != _labels(current or first):
            return "fault: an export predicts something else"
    return problem if problem.startswith("fault") else "done"


def _call(*words: str) -> tuple[Result | None, str]:
    """A command's result if it went well, and what is to be said of it otherwise."""
    result = CliRunner().invoke(app, list(words))
    if result.exit_code == 0:
        return result, ""
    if isinstance(result.exception, (SystemExit, TaskLMError)):
        said = str(result.exception) or result.output.strip()
        return None, f"refused: {words[0]}: {said[-300:]}"
    return None, f"fault: {words[0]}: {result.exception!r}"


def _labels(result: Result) -> list[Any]:
    """What answers say in words, alone or in lists; numbers may differ a little."""
    answers = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    return [{key: one[key] for key in one if _is_words(one[key])} for one in answers]


def _is_words(value: Any) -> bool:
    listed = value if isinstance(value, list) else [value]
    return all(isinstance(part, str) for part in listed)


def _write(one: Combination, path: Path, count: int, seed: int) -> Path:
    rows = one.case.rows(count, 10 * seed)
    if one.way == PAIRS:
        others = [row["text"] for row in one.case.rows(count, 10 * seed + 1)]
        return write_jsonl(
            path, [_pair(row, other) for row, other in zip(rows, others, strict=True)]
        )
    return one.case.write(path, _marked(rows) if one.way == MARKED else rows)


def _pair(row: dict[str, Any], other: str) -> dict[str, Any]:
    return {"text_a": row["text"], "text_b": other, "label": row["label"]}


def _marked(rows: Rows) -> Rows:
    """Texts in which the second word and the second to last are marked."""
    marked = []
    for row in rows:
        words = row["text"].split()
        words[1], words[-2] = f"<< {words[1]} >>", f"[[ {words[-2]} ]]"
        marked.append({**row, "text": " ".join(words)})
    return marked
