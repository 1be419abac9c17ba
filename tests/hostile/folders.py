"""Folders of models, exports and checkpoints that are broken, or made to do harm, each by one
change to a good one."""

from __future__ import annotations

import base64
import json
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from safetensors.torch import save_file

from tasklm.encoders.base import ENCODERS, Shape
from tasklm.encoders.checkpoints.hub_names import to_hugging_face
from tasklm.models.language_model import describe_language_model
from tasklm.objectives.base import OBJECTIVES
from tasklm.recipe.model_sections import Train
from tasklm.tokens.tokenizer import Vocabulary
from tests.hostile.changes import Change, cut, edit, entry, filled, header, in_place, put, weights
from tests.serve.models import LENGTH, random_model

FILES = ("config.json", "model.safetensors", "tokenizer.json")
FIRST = "encoder.token.weight"
HARMLESS = ("answered", "refused")


@dataclass(frozen=True)
class Hostile:
    """A good folder, what is done to it, and how a command that is given it may end."""

    name: str
    base: str  # name of the good folder
    change: Change
    ends: tuple[str, ...] = ("refused",)

    def make(self, bases: Path, to: Path) -> Path:
        """Makes the folder as a copy of the good one."""
        shutil.copytree(bases / self.base, to, symlinks=True)
        self.change(to)
        return to


def write_bases(folder: Path, vocabulary: Vocabulary) -> None:
    """Writes the good folders: a model of every kind, an export, a language model, checkpoints."""
    for kind in ("classify", "multilabel", "regress", "choice", "tag", "span", "parse"):
        shutil.move(random_model(folder / "made" / kind, kind, vocabulary), folder / kind)
    shutil.rmtree(folder / "made")
    _write_onnx(folder / "onnx", vocabulary)
    _write_language_model(folder / "language model", vocabulary)
    for name in ("bert", "modern", "roberta", "albert"):
        _write_checkpoint(folder / f"{name} checkpoint", name, vocabulary)


def _write_onnx(folder: Path, vocabulary: Vocabulary) -> None:
    """Writes an export with a graph of three nodes: an encoder of ours would take seconds."""
    numbers = {
        "embedding": torch.randn(len(vocabulary), 8).numpy(),
        "matrix": torch.randn(8, 2).numpy(),
    }
    nodes = [
        helper.make_node("Gather", ["embedding", "input_ids"], ["embedded"]),
        helper.make_node("ReduceMax", ["embedded"], ["text"], axes=[1], keepdims=0),
        helper.make_node("MatMul", ["text", "matrix"], ["logits"]),
    ]
    inputs = ["input_ids", "attention_mask"]
    given = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["rows", "length"])
        for name in inputs
    ]
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["rows", 2])
    weights = [numpy_helper.from_array(array, name) for name, array in numbers.items()]
    graph = helper.make_graph(nodes, "text", given, [logits], weights)
    folder.mkdir()
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
        folder / "model.onnx",
    )
    task = {"kind": "classify", "labels": ["no", "yes"]}
    record = {"to": "onnx", "task": task, "inputs": inputs, "length": LENGTH, "columns": {}}
    (folder / "export.json").write_text(json.dumps(record), encoding="utf-8")
    vocabulary.save(folder / "tokenizer.json")


def _write_language_model(folder: Path, vocabulary: Vocabulary) -> None:
    shape, settings = Shape(len(vocabulary), 1, 32, 2, 64, LENGTH), Train()
    folder.mkdir()
    encoder = ENCODERS.get("bert")(shape)
    objective = OBJECTIVES.get("mlm")("bert", shape, vocabulary, settings)
    parts = {f"encoder.{name}": tensor for name, tensor in encoder.state_dict().items()}
    parts |= {f"objective.{name}": tensor for name, tensor in objective.state_dict().items()}
    save_file(
        {name: tensor.clone() for name, tensor in parts.items()}, folder / "model.safetensors"
    )
    describe_language_model(folder, "bert", shape, vocabulary, settings, LENGTH)


def _write_checkpoint(folder: Path, name: str, vocabulary: Vocabulary) -> None:
    shape = Shape(len(vocabulary), 2, 32, 2, 64, LENGTH, embedding=16 if name == "albert" else 0)
    config, state = to_hugging_face(name, shape, ENCODERS.get(name)(shape).state_dict())
    folder.mkdir()
    save_file(state, folder / "model.safetensors")
    vocabulary.save(folder / "tokenizer.json")
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def everything() -> list[Hostile]:
    """All of them; no two have the same name."""
    folders = [
        *_descriptions(),
        *_shapes(),
        *_tasks(),
        *_files(),
        *_weights(),
        *_tokenizers(),
        *_exports(),
        *_others(),
        *_checkpoints(),
    ]
    assert len({one.name for one in folders}) == len(folders)
    return folders


def _named(
    base: str, cases: dict[str, Change], ends: tuple[str, ...] = ("refused",)
) -> Iterator[Hostile]:
    for name, change in cases.items():
        yield Hostile(f"{base}: {name}", base, change, ends)


def _descriptions() -> Iterator[Hostile]:
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
    yield from _named(
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
        yield from _named(
            "classify",
            {f"{key} = {repr(value)[:20]}": edit("config.json", **{key: value}) for value in some},
        )


def _shapes() -> Iterator[Hostile]:
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


def _tasks() -> Iterator[Hostile]:
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
        yield from _named(
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
            yield from _named(
                kind,
                {
                    f"{key} = {repr(value)[:30]}": edit("config.json", **{f"task__{key}": value})
                    for value in some
                },
            )
    wide = edit("config.json", task__high=1.7e308, task__low=-1.7e308)
    yield Hostile("regress: a range without an end", "regress", wide)


def _files() -> Iterator[Hostile]:
    for file in FILES:
        for kind in ("nothing", "pipe", "folder", "loop", "device", "socket", "sparse"):
            yield Hostile(f"classify: {kind} as {file}", "classify", in_place(file, kind))
    for kind in ("pipe", "device"):

        def change(folder: Path, kind: str = kind) -> None:
            put("special_tokens_map.json", "{}")(folder)
            in_place("special_tokens_map.json", kind)(folder)

        yield Hostile(f"classify: {kind} as special_tokens_map.json", "classify", change)


def _weights() -> Iterator[Hostile]:
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
    yield from _named("classify", cases)
    yield from _named("tag", {"nan weights": weights(filled("head.out.weight", float("nan")))})
    yield from _named("parse", {"inf weights": weights(filled("head.arcs", float("inf")))})


def _replacing(count: int) -> dict[str, Any]:
    doubling = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    return {"type": "Sequence", "normalizers": [doubling] * count}


def _split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _map(index: bytes, size: int | None = None) -> dict[str, Any]:
    blob = struct.pack("<I", len(index) if size is None else size) + index + b"abc\0"
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(blob).decode()}


def _tokenizers() -> Iterator[Hostile]:
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
    yield from _named("classify", {f"tokenizer: {name}": change for name, change in cases.items()})


def _exports() -> Iterator[Hostile]:
    values: dict[str, list[Any]] = {
        "to": ["hf", None, ...],
        "length": [0, 10**9, "x", ...],
        "inputs": [["other"], "input_ids", None, 5],
        "columns": [[], "x", 3],
        "task": [..., []],
        "task__kind": ["span", "none", "regress"],
        "task__labels": [["a"], [], ["a", "b", "c"]],
    }
    for key, some in values.items():
        yield from _named(
            "onnx",
            {f"{key} = {repr(value)[:30]}": edit("export.json", **{key: value}) for value in some},
        )
    cases: dict[str, Change] = {
        f"{kind} as model.onnx": in_place("model.onnx", kind)
        for kind in ("nothing", "pipe", "folder", "device")
    }
    cases |= {
        f"model.onnx cut to {share:.0%}": cut("model.onnx", share) for share in (0.0, 0.2, 0.9)
    }
    cases["garbage as model.onnx"] = put("model.onnx", b"garbage" * 100)
    cases["a loop"] = lambda folder: put(
        "model.onnx", (folder / "model.onnx").read_bytes() + b"\x22\x04Loop"
    )(folder)
    cases["export.json is no JSON"] = put("export.json", "{")
    more = {
        "id": 5000,
        "content": "日本",
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": False,
    }
    cases["a type beyond the embedding"] = edit("tokenizer.json", added_tokens=[more])
    yield from _named("onnx", cases)


def _others() -> Iterator[Hostile]:
    values: dict[str, list[Any]] = {
        "objective": ["none", "electra", 5],
        "train": [[], ..., {"none": 1}, {"objective": "mlm", "generator": "x"}],
        "length": [10**9, None],
        "shape__layers": [10**9],
        "encoder": ["none"],
        "format": [7],
    }
    for key, some in values.items():
        yield from _named(
            "language model",
            {f"{key} = {repr(value)[:30]}": edit("config.json", **{key: value}) for value in some},
        )
    cases: dict[str, Change] = {
        f"{kind} as {file}": in_place(file, kind) for kind in ("pipe", "device") for file in FILES
    }
    cases["nan weights"] = weights(filled(FIRST, float("nan")))
    cases["one missing"] = weights(lambda tensors: tensors.pop(FIRST))
    cases["config is a list"] = put("config.json", "[]")
    yield from _named("language model", cases)


def _checkpoints() -> Iterator[Hostile]:
    numbers = (
        "num_hidden_layers",
        "hidden_size",
        "num_attention_heads",
        "intermediate_size",
        "max_position_embeddings",
        "vocab_size",
    )
    for base in ("bert checkpoint", "modern checkpoint"):
        for key in numbers:
            some = (0, -1, 10**9, "8", None)
            changes = {f"{key} = {value!r}": edit("config.json", **{key: value}) for value in some}
            if (base, key) == ("modern checkpoint", "max_position_embeddings"):
                # it computes its positions, and 10**9 alone is refused
                del changes["max_position_embeddings = -1"]
            yield from _named(base, changes)
    more: dict[str, dict[str, list[Any]]] = {
        "modern checkpoint": {
            "layer_types": ["full", [1], ["full_attention"] * 9],
            "rope_parameters": [3, {"full_attention": 5}, [1]],
            "global_attn_every_n_layers": [0],
        },
        "bert checkpoint": {
            "model_type": [["bert"], 5, "gpt2"],
            "layer_norm_eps": [[], "x"],
            "hidden_act": ["relu", []],
            "pad_token_id": ["x", -1],
        },
        "roberta checkpoint": {"pad_token_id": [10**9, "x"]},
        "albert checkpoint": {"embedding_size": [0, 10**9, "x"]},
    }
    for base, keys in more.items():
        for key, some in keys.items():
            ends = (
                HARMLESS if key in ("global_attn_every_n_layers", "pad_token_id") else ("refused",)
            )
            yield from _named(
                base,
                {
                    f"{key} = {repr(value)[:30]}": edit("config.json", **{key: value})
                    for value in some
                },
                ends,
            )
    cases: dict[str, Change] = {
        f"{kind} as {file}": in_place(file, kind)
        for kind in ("pipe", "device", "folder")
        for file in FILES
    }
    cases["nan weights"] = weights(filled("embeddings.word_embeddings.weight", float("nan")))
    cases["one missing"] = weights(lambda tensors: tensors.pop("embeddings.word_embeddings.weight"))
    cases["weights cut"] = cut("model.safetensors", 0.5)
    for name, content in {
        "a list": "[]",
        "no map": "{}",
        "numbers": ('{"weight_map": {"a": 5}}'),
        "other folders": ('{"weight_map": {"a": "../x"}}'),
        "a list as map": '{"weight_map": [1]}',
        "no JSON": "{",
    }.items():

        def index(folder: Path, content: str = content) -> None:
            (folder / "model.safetensors").unlink()
            put("model.safetensors.index.json", content)(folder)

        cases[f"an index that is {name}"] = index
    yield from _named("bert checkpoint", cases)


def is_start(one: Hostile) -> bool:
    """Whether a folder is one to start from, not one that predicts."""
    return one.base.endswith(("checkpoint", "language model"))
