"""Mutated files of every format and kind are read, or refused in words: no other error, no hang, no
gigabytes."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as some

from tests.hostile.files import Sample, jsonl, mutated, one, outcome, samples
from tests.hostile.limits import limited

SAMPLES = samples()
HUGE, DEEP = b"9" * 5000, b"[" * 5000 + b"]" * 5000
FAR_AWAY = b"""{"data": [{"paragraphs": [
    {"context": "a", "qas": [{"question": "b", "answers": [{"text": "a", "answer_start": 1e999}]}]}]}]}"""


@some.composite
def changed(draw: some.DrawFn) -> Sample:
    """A mutated sample."""
    return mutated(draw(some.sampled_from(SAMPLES)), random.Random(draw(some.integers(0, 2**64))))


def rows(*values: bytes) -> bytes:
    """Rows of labelled JSON lines, the last ones with these labels."""
    plain = [{"text": f"a text {number}", "label": f"{number % 2}"} for number in range(6)]
    return jsonl(plain) + b"".join(
        b'{"text": "one more", "label": ' + value + b"}\n" for value in values
    )


def test_whole_samples_are_read(tmp_path: Path) -> None:
    for number, sample in enumerate(SAMPLES):
        end = outcome(sample, sample.write(tmp_path / str(number)))
        assert end == "read", sample.name


def test_mutated_samples_are_read_or_refused() -> None:
    seen: Counter[str] = Counter()

    @given(sample=changed())
    @example(one("a.jsonl", "classify", rows(HUGE)))
    @example(one("a.jsonl", "classify", rows(b"1" + b"0" * 400)))
    @example(one("a.jsonl", "regress", rows(b"1" + b"0" * 400)))
    @example(one("a.jsonl", "regress", rows(b"1e308", b"-1e308")))
    @example(one("a.jsonl", "classify", rows(rb'"\ud800"')))
    @example(one("a.jsonl", "multilabel", rows(rb'["a\ud800", "b"]')))
    @example(one("a.jsonl", "classify", rows(DEEP)))
    @example(one("a.jsonl", "tag", rb'{"tokens": ["a\udfff"], "tags": ["\ud800"]}' + b"\n"))
    @example(
        one(
            "a.jsonl",
            "parse",
            b'{"tokens": ["a"], "heads": [-1' + b"0" * 400 + b'], "deprels": ["root"]}\n',
        )
    )
    @example(one("a.conllu", "parse", b"1\ta\t_\t_\t_\t_\t" + HUGE + b"\troot\t_\t_\n"))
    @example(
        one(
            "a.jsonl",
            "choice",
            rb'{"question": "a", "options": ["\ud800", "b"], "answer": "' + HUGE + b'"}\n',
        )
    )
    @example(one("a.csv", "choice", b'question,options,answer\na,"[' + HUGE + b']",0\n'))
    @example(one("a.json", "span", b'{"data": [], "a": ' + HUGE + b', "paragraphs": []}'))
    @example(one("a.json", "span", FAR_AWAY))
    @example(
        one("a.jsonl", "lists", b'{"candidates": [{"text": "a", "score": 1' + b"0" * 400 + b"}]}\n")
    )
    @example(one("recipe.toml", "recipe", b"[train]\nsteps = " + HUGE))
    @example(one("recipe.toml", "recipe", b"[train]\nrho2 = 1" + b"0" * 400))
    @example(one("recipe.toml", "recipe", b"a = " + DEEP))
    @settings(
        max_examples=400,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def read(sample: Sample) -> None:
        with tempfile.TemporaryDirectory() as folder, limited():
            seen[outcome(sample, sample.write(Path(folder)))] += 1

    read()
    assert seen["read"] > 20 and seen["refused"] > 100
