from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import numpy as np
import pytest

from tasklm.cli.results import show_findings
from tasklm.corpus.corpus_text import CorpusText
from tasklm.corpus.decontaminate import contaminated
from tasklm.corpus.store import PassageStore, build_store
from tasklm.errors import DataError
from tasklm.recipe.data_sections import Data
from tasklm.tasks import audit
from tasklm.tasks.audit import audit_corpus, audit_splits, refuse
from tasklm.tasks.classify import Classify
from tasklm.tasks.examples import Example, Finding, Splits
from tasklm.tracking import SILENT

TOPICS = [
    "rivers run down to the sea",
    "engines need oil and care",
    "bread is baked before dawn",
    "clocks tell us when to go",
]


def part(name: str, texts: list[str], labels: str = "ab") -> list[Example]:
    return [
        Example((text,), labels[i % len(labels)], f"{name}.jsonl", i + 1)
        for i, text in enumerate(texts)
    ]


def distinct(name: str, count: int) -> list[str]:
    return [f"{name} {i * 37} {TOPICS[i % 4]} {name}{i} {i * i + 7}" for i in range(count)]


def splits(extra: list[str] | None = None, labels: str = "ab") -> Splits:
    return Splits(
        part("train", distinct("alpha", 40) + (extra or []), labels),
        part("dev", distinct("beta", 6)),
        part("test", distinct("gamma", 6)),
    )


def found(findings: list[Finding], check: str) -> list[Finding]:
    return [finding for finding in findings if finding.check == check]


def only(findings: list[Finding], check: str) -> Finding:
    assert len(found(findings, check)) == 1
    return found(findings, check)[0]


def test_clean_data_is_ok_throughout() -> None:
    findings = [*Classify(["a", "b"]).audit(splits()), *audit_splits(splits(), Data())]
    assert {finding.level for finding in findings} == {"ok"}
    assert (
        "2 labels in train: a 20, b 20; examples: train 40, dev 6, test 6"
        in only(findings, "labels").message
    )
    refuse(findings)


def test_imbalance_and_rare_labels() -> None:
    data = splits()
    data.train = part("train", distinct("alpha", 41), "a" * 40 + "b")
    findings = Classify(["a", "b"]).audit(data)
    assert (
        "'a' has 40 times as many training examples as 'b'" in only(findings, "imbalance").message
    )
    assert (
        "1 of 2 labels have fewer than 5 training examples: 'b'"
        in only(findings, "rare labels").message
    )


def test_empty_and_long_texts() -> None:
    data = splits(["word " * 401, "word " * 400])
    data.notes.append("train: 2 rows without text left out (lines 3, 4)")
    findings = audit_splits(data, Data())
    assert only(findings, "empty texts").level == "warning"
    assert "(lines 3, 4)" in only(findings, "empty texts").message
    long = only(findings, "long texts")
    assert "1 of 42 in train" in long.message
    assert "tokens.length" in long.message
    assert len(long.examples) == 1
    assert long.examples[0].startswith("train.jsonl, line 41: 'word word")
    assert "(401 words)" in long.examples[0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a caf\ufffd here", "U+FFFD"),
        ("the cafÃ© is here", "'Ã©'"),
        ("itâ€™s broken", "â€™"),
        ("a \x07 bell", "U+0007"),
        ("line \x92 here", "U+0092"),
    ],
)
def test_encoding_trouble(text: str, told: str) -> None:
    finding = only(audit_splits(splits([text]), Data()), "encoding")
    assert finding.level == "warning"
    assert "1 of 41 in train" in finding.message
    assert "train.jsonl, line 41" in finding.examples[0]
    assert told in finding.examples[0]


def test_good_unicode_is_no_trouble() -> None:
    fine = [
        "Ünïcödé, naïve: 中文 — “quotes”\n\tand tabs",
        "São Paulo À Â Ã, em português: ÂNGELA, MANHÃ",
        "emoji 😀 นี่",
    ]
    assert only(audit_splits(splits(fine), Data()), "encoding").level == "ok"


def test_duplicates_and_conflicts_within_a_split() -> None:
    data = splits()
    data.train += [
        Example((data.train[3].text.upper(),), data.train[3].label, "train.jsonl", 90),
        Example((data.train[5].text,), "other", "train.jsonl", 91),
    ]
    findings = audit_splits(data, Data())
    same = only(findings, "duplicates")
    assert same.level == "warning"
    assert "1 of 42 examples of train repeat an earlier one with the same label" in same.message
    assert "line 90" in same.examples[0]
    assert "repeats line 4" in same.examples[0]
    clash = only(findings, "conflicting labels")
    assert "1 texts occur in train with different labels" in clash.message
    assert "'b' (line 6) and 'other' (line 91)" in clash.examples[0]


def leaky() -> Splits:
    data = splits()
    data.test += [
        Example((f"  {example.text.upper()}",), example.label, "test.jsonl", 50 + i)
        for i, example in enumerate(data.train[:5])
    ]
    return data


def test_examples_in_two_splits_are_refused() -> None:
    finding = only(audit_splits(leaky(), Data()), "examples in two splits")
    assert finding.level == "error"
    assert "5 of the 11 test examples also occur in train" in finding.message
    assert "--data.leaks drop" in finding.message
    assert len(finding.examples) == 3
    assert "test.jsonl, line 50" in finding.examples[0]
    assert "is also in train: train.jsonl, line 1" in finding.examples[0]
    with pytest.raises(
        DataError,
        match=(
            r"(?s)the data has an error.*5 of the 11 test "
            r"examples.*test.jsonl, line 50.*tasklm check"
        ),
    ):
        refuse([finding])


@pytest.mark.parametrize("leaks", ["keep", "drop"])
def test_or_only_warned_about(leaks: str) -> None:
    findings = audit_splits(leaky(), Data(leaks=leaks))
    finding = only(findings, "examples in two splits")
    assert finding.level == "warning"
    assert "Scores on test are too high" in finding.message
    refuse(findings)


def test_near_duplicates_within_and_across_splits() -> None:
    base = " ".join(f"w{i}" for i in range(60))
    data = splits([base, base + " and more", "some " + " ".join(f"v{i}" for i in range(60))])
    data.test.append(
        Example((" ".join(f"v{i}" for i in range(60)) + " end",), "a", "test.jsonl", 77)
    )
    findings = audit_splits(data, Data())
    within = only(findings, "near duplicates")
    assert "in train that are nearly the same: 1." in within.message
    assert "line 41" in within.examples[0]
    assert "resembles line 42" in within.examples[0]
    across = only(findings, "near duplicates in two splits")
    assert across.level == "warning"
    assert "1 of the 7 test examples nearly repeat one in train" in across.message
    assert "test.jsonl, line 77" in across.examples[0]
    assert "resembles train.jsonl, line 43" in across.examples[0]
    assert only(findings, "examples in two splits").level == "ok"


def test_refuse_tells_all_errors() -> None:
    errors = [
        Finding("error", "one", "first thing."),
        Finding("warning", "two", "not told"),
        Finding("error", "three", "second thing."),
    ]
    with pytest.raises(DataError) as caught:
        refuse(errors)
    assert "the data has 2 errors" in str(caught.value)
    assert "first thing." in str(caught.value)
    assert "second thing." in str(caught.value)
    assert "not told" not in str(caught.value)


def store(tmp_path: Path, texts: list[str]) -> PassageStore:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    (tmp_path / "store").mkdir()
    build_store(tmp_path / "store", CorpusText((path,)), SILENT)
    return PassageStore.open(tmp_path / "store")


def test_the_corpus(tmp_path: Path) -> None:
    data = splits()
    data.test.append(Example(("ok",), "a", "test.jsonl", 9))
    corpus = store(
        tmp_path, ["a clean passage", "A clean  passage", "", f"before {data.test[2].text} after"]
    )
    result = contaminated(corpus, {"test": [example.text for example in data.test]}, 8, SILENT)
    findings = audit_corpus(corpus, data, result)
    assert (
        only(findings, "corpus").message
        == "2 passages, 14 words from 4 documents; left out: 1 duplicates, 1 without text."
    )
    finding = only(findings, "contamination")
    assert finding.level == "warning"
    assert (
        "1 of 2 passages contain text of dev or test and are left out; 1 remain." in finding.message
    )
    assert "1 task texts of fewer than 5 words were not searched for" in finding.message
    assert corpus.id(1) in finding.examples[0]
    assert "with test (test.jsonl, line 3)" in finding.examples[0]
    refuse(findings)
    result.banned = np.ones(2, dtype=np.bool_)
    with pytest.raises(
        DataError, match=r"nothing is left to learn from. Add other text with --corpus"
    ):
        refuse(audit_corpus(corpus, data, result))
    result.banned = np.zeros(2, dtype=np.bool_)
    assert only(audit_corpus(corpus, data, result), "contamination").level == "ok"


def test_warnings_are_told_in_one_short_line() -> None:
    """Beside its label, a warning is one line of a terminal of 80 columns."""
    data = splits(
        [
            "word " * 401,
            "caf\ufffd",
            TOPICS[0] + " again and again today",
            TOPICS[0] + " again and again today!",
        ],
        "aaaaaaaaaaaaaaab",
    )
    data.notes.append("train: 2 rows without text left out (lines 3, 4)")
    data.train += [data.train[3], Example((data.train[5].text,), "other", "train.jsonl", 91)]
    data.test += [data.train[0], Example((f"{data.train[7].text} more",), "a", "test.jsonl", 99)]
    findings = [*Classify(["a", "b"]).audit(data), *audit_splits(data, Data(leaks="keep"))]
    warnings = {finding.check: finding.brief for finding in findings if finding.level == "warning"}
    assert warnings.keys() >= {
        "imbalance",
        "rare labels",
        "empty texts",
        "long texts",
        "encoding",
        "duplicates",
        "conflicting labels",
    }
    assert warnings.keys() >= {"examples in two splits", "near duplicates in two splits"}
    assert all(0 < len(brief) <= 70 and "\n" not in brief for brief in warnings.values()), warnings
    ones = re.compile(r"\b1 (examples|texts|passages)\b")  # there is one of each
    assert not any(ones.search(brief) for brief in warnings.values()), warnings


def test_the_audit_ends_in_counts_of_the_right_number(capsys: pytest.CaptureFixture[str]) -> None:
    show_findings([Finding("error", "a", "x."), Finding("warning", "b", "y.")])
    assert "1 error, 1 warning, 0 checks passed" in capsys.readouterr().out


def test_every_kind_tells_its_warnings_briefly() -> None:
    """A finding that may be a warning is given its short line: as the fifth
    argument, or by name.
    """
    for path in sorted(Path(audit.__file__).parent.glob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Name)
                and call.func.id == "Finding"
            ):
                level = ast.unparse(call.args[0])
                brief = len(call.args) > 4 or any(
                    keyword.arg == "brief" for keyword in call.keywords
                )
                assert level in ("'ok'", "'error'") or brief, f"{path.name}, line {call.lineno}"
