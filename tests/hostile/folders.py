"""Folders of models, exports and checkpoints that are broken, or made to do harm, each by one
change to a good one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.hostile.changes import Change, cut, edit, filled, in_place, put, weights
from tests.hostile.good_folders import FILES, FIRST, HARMLESS, Hostile, named
from tests.hostile.model_folders import descriptions, files, shapes, tasks, tokenizers, weight_files


def everything() -> list[Hostile]:
    """All of them; no two have the same name."""
    folders = [
        *descriptions(),
        *shapes(),
        *tasks(),
        *files(),
        *weight_files(),
        *tokenizers(),
        *_linear(),
        *_exports(),
        *_others(),
        *_checkpoints(),
    ]
    assert len({one.name for one in folders}) == len(folders)
    return folders


def _linear() -> Iterator[Hostile]:
    values: dict[str, list[Any]] = {
        "task__labels": [["a"], [], ["a", "b", "c"], "ab"],
        "task__kind": ["span", "parse", "regress", "multilabel", "several", None],
        "models": [2, 0],
        "length": [0, 10**9, "x"],
        "shape": [..., None],
    }
    for key, some in values.items():
        yield from named(
            "linear",
            {f"{key} = {repr(value)[:30]}": edit("config.json", **{key: value}) for value in some},
        )
    for kind in ("nothing", "pipe", "folder", "loop", "device", "sparse"):
        files = (*FILES, "wide/wide.json", "wide/weights.safetensors", "wide/features.json")
        yield from named("linear", {f"{kind} as {file}": in_place(file, kind) for file in files})
    scale = "wide_scale"
    cases = {
        f"{scale} is {number}": weights(filled(scale, float(number))) for number in ("nan", "inf")
    }
    cases["no scale"] = weights(lambda tensors: tensors.pop(scale))
    cases["no weights"] = weights(lambda tensors: tensors.clear())
    cases["weights are garbage"] = put("model.safetensors", b"garbage" * 1000)
    cases["no linear model"] = lambda folder: shutil.rmtree(folder / "wide")
    for number in (float("nan"), float("inf"), "x", None, ...):
        cases[f"wide.json with the scale {number}"] = edit("wide/wide.json", scale=number)
    yield from named("linear", cases)
    about = {repr(one): edit("config.json", about=one) for one in (5, [], None, {"linear": 1})}
    yield from named("linear", {f"about = {name}": one for name, one in about.items()}, HARMLESS)
    # what the silent network says is not asked
    more = {"encoder": edit("config.json", encoder="none"), "weights": weights(filled(FIRST, 3e38))}
    yield from named("linear", {f"another {name}": one for name, one in more.items()}, HARMLESS)


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
        yield from named(
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
    yield from named("onnx", cases)


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
        yield from named(
            "language model",
            {f"{key} = {repr(value)[:30]}": edit("config.json", **{key: value}) for value in some},
        )
    cases: dict[str, Change] = {
        f"{kind} as {file}": in_place(file, kind) for kind in ("pipe", "device") for file in FILES
    }
    cases["nan weights"] = weights(filled(FIRST, float("nan")))
    cases["one missing"] = weights(lambda tensors: tensors.pop(FIRST))
    cases["config is a list"] = put("config.json", "[]")
    yield from named("language model", cases)


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
            yield from named(base, changes)
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
            yield from named(
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
    yield from named("bert checkpoint", cases)


def is_start(one: Hostile) -> bool:
    """Whether a folder is one to start from, not one that predicts."""
    return one.base.endswith(("checkpoint", "language model"))
