"""Tokenizers from anywhere: what would fill the memory, or never end, is refused before it is
run."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tasklm.errors import RunError, TaskLMError
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.tokens.tokenizer_checks import MOST_IDS, check_pattern, check_tokenizer
from tests.checkpoints import MODELS, tokenizer_of

TYPES = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "##a": 6, "b": 7}
WORDPIECE = {
    "type": "WordPiece",
    "unk_token": "[UNK]",
    "continuing_subword_prefix": "##",
    "max_input_chars_per_word": 100,
    "vocab": TYPES,
}
PUBLISHED = [
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",  # GPT-2's
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| "
        r"?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    r"[^\r\n\p{L}\p{N}]?+\p{L}++|(?>a)",
    r" {2,}",
    r"(?<=\d)(?=(\d{3})+(?!\d))",
    r"[[:punct:]]|\x{3040}|[]^]+",
]
HOSTILE = [
    "(a+)+$",
    "(a*)*b",
    "(a|a)*b",
    "(a|aa)+$",
    "((a{1,9}){1,9}){1,9}b",
    r"(a)\1+",
    "(?<x>a)",
    r"\k<x>",
    r"(?R)",
    "(.*.*)+",
    "(a?){50}b",
    "a*a*a*a*b",
    "(" * 3 + "a+" + ")" * 3 + "+",
    ")",
    "[a",
    "a" * 3000,
    r"\g<0>",
    "(?:a{0,1000}){2,}",
    "(a+?)*+",
    "(?(1)a|b)",
]


def described(**changes: Any) -> dict[str, Any]:
    return {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": WORDPIECE,
        **changes,
    }


def replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def refused(**changes: Any) -> str:
    with pytest.raises(ValueError) as caught:
        check_tokenizer(described(**changes))
    return str(caught.value)


@pytest.mark.parametrize("pattern", PUBLISHED)
def test_patterns_of_published_tokenizers_are_taken(pattern: str) -> None:
    check_pattern(pattern)


@pytest.mark.parametrize("pattern", HOSTILE)
def test_patterns_that_may_take_for_ever_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="may run forever"):
        check_pattern(pattern)


@pytest.mark.parametrize("model", [model for model in MODELS if "," not in model])
def test_tokenizers_of_published_families_are_taken(model: str) -> None:
    check_tokenizer(json.loads(tokenizer_of(model).to_str()))


def test_texts_that_grow_without_end_are_refused() -> None:
    doubling = replace({"String": "a"}, "aa")
    assert "times as long" in refused(
        normalizer={"type": "Sequence", "normalizers": [doubling] * 40}
    )
    nested: dict[str, Any] = doubling
    for _ in range(20):
        nested = {"type": "Sequence", "normalizers": [nested, doubling]}
    assert "times as long" in refused(normalizer=nested)
    assert "the empty text" in refused(normalizer=replace({"String": ""}, "a"))
    assert "times as long" in refused(normalizer=replace({"Regex": "a"}, "a" * 1000))
    assert "more than 100" in refused(
        normalizer={"type": "Sequence", "normalizers": [{"type": "Lowercase"}] * 200}
    )
    check_tokenizer(
        described(
            normalizer={
                "type": "Sequence",
                "normalizers": [replace({"String": "``"}, '"'), doubling],
            }
        )
    )


def test_maps_of_sentencepiece_are_measured() -> None:
    def charsmap(index: bytes, texts: bytes, size: int | None = None) -> dict[str, Any]:
        blob = struct.pack("<I", len(index) if size is None else size) + index + texts
        return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(blob).decode()}

    check_tokenizer(described(normalizer=charsmap(bytes(1024), b"abc\0def\0")))
    assert "times as long" in refused(normalizer=charsmap(bytes(1024), b"a" * 1000 + b"\0"))
    assert "damaged" in refused(normalizer=charsmap(bytes(4), b"", 2**32 - 1))
    for blob in ("AAAA", "/////w==", "no base64", None):
        assert "damaged" in refused(
            normalizer={"type": "Precompiled", "precompiled_charsmap": blob}
        )


def test_models_that_cannot_be_run_are_refused() -> None:
    for number in (-1, MOST_IDS, 2**32 - 1, 10**400, "5", None):
        assert "are not numbers" in refused(model={**WORDPIECE, "vocab": {**TYPES, "c": number}})
        assert "are not numbers" in refused(added_tokens=[{"id": number, "content": "c"}])
    assert "max_input_chars_per_word" in refused(
        model={**WORDPIECE, "max_input_chars_per_word": 10**9}
    )
    assert "it has no '[FOO]' token" in refused(model={**WORDPIECE, "unk_token": "[FOO]"})
    assert "at random" in refused(
        model={"type": "BPE", "vocab": TYPES, "merges": [], "dropout": 0.5}
    )
    template = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "X", "type_id": 0}}],
        "pair": [],
        "special_tokens": {},
    }
    assert "the special token 'X'" in refused(post_processor=template)
    for values in (None, [], {}, {"model": 3}):
        with pytest.raises(ValueError, match="does not describe a tokenizer"):
            check_tokenizer(values)


def test_a_text_that_the_tokenizer_cannot_read_is_told_in_words(tmp_path: Path) -> None:
    names = [*TYPES, "▁"]
    unigram = {"type": "Unigram", "unk_id": None, "vocab": [[name, -1.0] for name in names]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(described(model=unigram)), encoding="utf-8")
    vocabulary = Vocabulary.load(tmp_path / "tokenizer.json")
    assert vocabulary.encode(["a b"]) == [[5, 7]]
    with pytest.raises(RunError, match=r"the tokenizer .*tokenizer\.json fails on a text .*unk_id"):
        vocabulary.encode(["ü"])
    with pytest.raises(RunError, match="fails on a text"):
        vocabulary.spans("ü")


def test_panics_of_the_library_are_told_in_words(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    blob = struct.pack("<I", 4096) + b"\xff" * 4096 + b"abc\0"  # an index that leads out of itself
    normalizer = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(blob).decode()}
    (tmp_path / "tokenizer.json").write_text(
        json.dumps(described(normalizer=normalizer)), encoding="utf-8"
    )
    with pytest.raises(TaskLMError, match=r"index out of bounds"):
        Vocabulary.load(tmp_path / "tokenizer.json").encode(["a text"])
    assert "Traceback" not in capfd.readouterr().err
