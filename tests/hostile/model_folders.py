"""Folders of models that are broken, or made to do harm: descriptions, weights, tokenizers."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from tests.hostile.changes import Change, cut, edit, entry, filled, header, in_place, put, weights
from tests.hostile.good_folders import FILES, FIRST, Hostile, named
from tests.serve.models import LENGTH


def descriptions() -> Iterator[Hostile]:
    contents = {
        "empty": b"",
        "no JSON": b"{",
        "a list": b"[]",
        "null": b"null",
        "bytes": b"\xff\xfe",
        "deep": b"[" * 100_000,
        "NUL": b"\0" * 100,
        "a huge number": b'{"format": ' + b"9" * 5000 + b"}",
        "a text": b'"format"',
        "format alone": b'{"format": 3}',
        "not closed": b'{"format": 3',
    }
    yield from named(
        "classify",
        {f"config is {name}": put("config.json", content) for name, content in contents.items()},
    )
    values = {
        "format": [99, "3", None, [3]],
        "encoder": ["none", 5, None, "../bert", ["bert"], ...],
        "models": [0, -1, 10**9, "2", 2.0, 2, True],
        "length": [0, -1, 2, 10**9, 10**400, "32", None, 33.5, LENGTH + 1, ...],
        "task": [..., None, [], "classify"],
        "shape": [..., [], None, 3],
    }
    for key, some in values.items():
        yield from named(
            "classify",
            {f"{key} = {repr(value)[:20]}": edit("config.json", **{key: value}) for value in some},
        )


def shapes() -> Iterator[Hostile]:
    for key in ("vocabulary", "layers", "width", "heads", "feedforward", "positions"):
        for value in (0, -1, 10**9, 10**400, "8", 2.5, None, True, ...):
            yield Hostile(
                f"shape: {key} = {repr(value)[:20]}",
                "classify",
                edit("config.json", **{f"shape__{key}": value}),
            )
    more = {
        "layers": 7,
        "heads": 3,
        "width": 64,
        "feedforward": 65,
        "vocabulary": 4_000_000,
        "positions": LENGTH + 8,
        "embedding": 8,
        "dropout": 2.0,
        "other": 1,
    }
    for key, value in more.items():
        yield Hostile(
            f"shape: {key} = {value}, which does not fit",
            "classify",
            edit("config.json", **{f"shape__{key}": value}),
        )
    yield Hostile(
        "shape: dropout = NaN", "classify", edit("config.json", shape__dropout=float("nan"))
    )
    yield Hostile(
        "shape: as large as may be",
        "classify",
        edit("config.json", shape__layers=256, shape__width=65_536, shape__heads=1024),
    )


def tasks() -> Iterator[Hostile]:
    labels = [
        ...,
        [],
        "abc",
        [1, 2],
        ["a", "a"],
        ["a"],
        ["a", "b", "c", "d", "e"],
        None,
        {"a": 1},
        [["a"], ["b"]],
    ]
    for kind in ("classify", "multilabel", "tag", "parse"):
        yield from named(
            kind,
            {
                f"labels = {repr(value)[:30]}": edit("config.json", task__labels=value)
                for value in labels
            },
        )
    values: dict[str, dict[str, list[Any]]] = {
        "classify": {
            "kind": ["none", None, [], "tag", "parse", "span", "../classify"],
            "marks": [["a"], "a", [""], [1], ["a"] * 9],
        },
        "multilabel": {"thresholds": [[0.5], "x", [float("nan")] * 3, [None] * 3]},
        "regress": {
            "low": [float("nan"), float("inf"), "0", None, 10**400],
            "high": [float("-inf"), -1e9, ...],
        },
        "choice": {"options": [0, -1, 10**9, "3", 2.5, None, ...]},
        "tag": {"crf": ["yes", True], "scheme": [None, 5], "characters": [0]},
        "span": {
            "stride": [-1, 10**9, "4"],
            "answer_tokens": [0, 10**9],
            "threshold": [float("nan"), "x"],
            "unanswerable": ["no"],
        },
        "parse": {"usual": [None, ["a"]], "punctuation": [3]},
    }
    for kind, keys in values.items():
        for key, some in keys.items():
            yield from named(
                kind,
                {
                    f"{key} = {repr(value)[:30]}": edit("config.json", **{f"task__{key}": value})
                    for value in some
                },
            )
    wide = edit("config.json", task__high=1.7e308, task__low=-1.7e308)
    yield Hostile("regress: a range without an end", "regress", wide)


def files() -> Iterator[Hostile]:
    for file in FILES:
        for kind in ("nothing", "pipe", "folder", "loop", "device", "socket", "sparse"):
            yield Hostile(f"classify: {kind} as {file}", "classify", in_place(file, kind))
    for kind in ("pipe", "device"):

        def change(folder: Path, kind: str = kind) -> None:
            put("special_tokens_map.json", "{}")(folder)
            in_place("special_tokens_map.json", kind)(folder)

        yield Hostile(f"classify: {kind} as special_tokens_map.json", "classify", change)


def weight_files() -> Iterator[Hostile]:
    cases: dict[str, Change] = {
        f"{kind} weights": weights(filled(FIRST, float(kind)))
        for kind in ("nan", "inf", "-inf", "3e38")
    }
    cases["one NaN"] = weights(
        lambda tensors: tensors["head.out.bias"].view(-1)[0].fill_(float("nan"))
    )
    cases["one missing"] = weights(lambda tensors: tensors.pop(FIRST))
    cases["one more"] = weights(lambda tensors: tensors.update(more=torch.zeros(3)))
    cases["one renamed"] = weights(lambda tensors: tensors.update({"token": tensors.pop(FIRST)}))
    cases["one transposed"] = weights(
        lambda tensors: tensors.update({FIRST: tensors[FIRST].T.contiguous()})
    )
    cases["whole numbers"] = weights(
        lambda tensors: tensors.update({FIRST: tensors[FIRST].to(torch.int32)})
    )
    cases["no weights"] = weights(lambda tensors: tensors.clear())
    cases |= {
        f"weights cut to {share:.0%}": cut("model.safetensors", share)
        for share in (0.0, 0.01, 0.5, 0.999)
    }
    cases["weights are garbage"] = put("model.safetensors", b"garbage" * 1000)
    cases["a header without an end"] = put("model.safetensors", struct.pack("<Q", 2**63) + b"{}")
    cases["a header of 90 MB"] = put("model.safetensors", struct.pack("<Q", 90 << 20) + b"{" * 1000)
    cases["a deep header"] = put("model.safetensors", struct.pack("<Q", 50_000) + b"[" * 50_000)
    cases["a shape that overflows"] = header(
        entry(FIRST, {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]})
    )
    cases["offsets beyond the end"] = header(
        entry(FIRST, {"dtype": "F32", "shape": [1], "data_offsets": [2**60, 2**60 + 4]})
    )
    cases["negative shapes"] = header(
        entry(FIRST, {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]})
    )

    def sparse(values: dict[str, Any]) -> None:
        values.clear()
        values[FIRST] = {"dtype": "F32", "shape": [1 << 20, 1 << 18], "data_offsets": [0, 1 << 40]}

    cases["a terabyte of weights in a sparse file"] = header(sparse, 1 << 40)
    yield from named("classify", cases)
    yield from named("tag", {"nan weights": weights(filled("head.out.weight", float("nan")))})
    yield from named("parse", {"inf weights": weights(filled("head.arcs", float("inf")))})


def _replacing(count: int) -> dict[str, Any]:
    doubling = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    return {"type": "Sequence", "normalizers": [doubling] * count}


def _split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _map(index: bytes, size: int | None = None) -> dict[str, Any]:
    blob = struct.pack("<I", len(index) if size is None else size) + index + b"abc\0"
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(blob).decode()}


def tokenizers() -> Iterator[Hostile]:
    def tokenizer(**values: Any) -> Change:
        return edit("tokenizer.json", **values)

    def numbered(number: Any) -> Change:
        def change(folder: Path) -> None:
            path = folder / "tokenizer.json"
            content = json.loads(path.read_text(encoding="utf-8"))
            content["model"]["vocab"]["more"] = number
            path.write_text(json.dumps(content), encoding="utf-8")

        return change

    token = {
        "id": 5000,
        "content": "日本",
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": False,
    }
    template = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "X", "type_id": 0}}],
        "pair": [],
        "special_tokens": {},
    }
    unigram = {
        "type": "Unigram",
        "unk_id": None,
        "vocab": [[name, -1.0] for name in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")],
    }
    cases = {
        "texts that double 40 times": tokenizer(normalizer=_replacing(40)),
        "texts that double 99 times": tokenizer(normalizer=_replacing(99)),
        "a replaced empty text": tokenizer(
            normalizer={"type": "Replace", "pattern": {"String": ""}, "content": "a" * 1000}
        ),
        "a long replacement": tokenizer(
            normalizer={"type": "Replace", "pattern": {"Regex": "."}, "content": "a" * 10_000}
        ),
        "a long beginning": tokenizer(normalizer={"type": "Prepend", "prepend": "a" * 100_000}),
        "a map that is too large": tokenizer(normalizer=_map(b"\0" * 4, 2**32 - 1)),
        "a map that leads out of itself": tokenizer(normalizer=_map(b"\xff" * 4096)),
        "very long words": tokenizer(model__max_input_chars_per_word=10**9),
        "no unknown token": tokenizer(model__unk_token="[NONE]"),
        "no specials": tokenizer(model__vocab={"a": 0}, added_tokens=[]),
        "a unigram model without an unknown token": tokenizer(
            model=unigram, added_tokens=[], pre_tokenizer=None
        ),
        "an added type beyond the embedding": tokenizer(added_tokens=[token]),
        "a template without its tokens": tokenizer(post_processor=template),
        "an unknown part": tokenizer(pre_tokenizer={"type": "None"}),
        "no model": tokenizer(model=...),
        "words at random": tokenizer(
            model={"type": "BPE", "dropout": 0.5, "vocab": {"a": 0}, "merges": []}
        ),
        "garbage": put("tokenizer.json", b"garbage"),
        "nothing in it": put("tokenizer.json", b""),
        "deep": put("tokenizer.json", b"[" * 100_000),
        "names that are none": put("special_tokens_map.json", '{"unk_token": "[NONE]"}'),
        "names that are a list": put("special_tokens_map.json", "[1]"),
        "names that are numbers": put("special_tokens_map.json", '{"pad_token": 5}'),
    }
    for pattern in ("(a+)+$", "(.*)*b", "(a|a)*b", r"(a)\1", "a*a*a*a*b", "("):
        cases[f"the pattern {pattern}"] = tokenizer(pre_tokenizer=_split(pattern))
    for number in (5000, 2**32 - 1, -1, 10**400, "5", None, 2.5):
        cases[f"a type with the number {repr(number)[:20]}"] = numbered(number)
    yield from named("classify", {f"tokenizer: {name}": change for name, change in cases.items()})
