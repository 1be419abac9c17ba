"""Where checkpoints are found, in which files, and what is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tasklm.encoders.checkpoints.folder import (
    Checkpoint,
    find_checkpoint,
    hub_cache,
    read_checkpoint,
)
from tasklm.errors import DataError
from tests.checkpoints import write_checkpoint

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints") / "bert"
    write_checkpoint(folder, "bert", transformers)
    return folder


def all_weights(checkpoint: Checkpoint) -> dict[str, Tensor]:
    encoder, heads = checkpoint.weights()
    return {
        **encoder,
        **{
            f"{title} {name}": tensor
            for title, head in heads.items()
            for name, tensor in head.items()
        },
    }


def same(one: Checkpoint, other: Checkpoint) -> bool:
    first, second = all_weights(one), all_weights(other)
    return (
        one.shape == other.shape
        and first.keys() == second.keys()
        and all(torch.equal(first[name], second[name]) for name in first)
    )


def test_several_files_are_as_one(bert: Path, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "bert", transformers, shards="20KB")
    found = read_checkpoint(tmp_path)
    assert (
        len(found.files) > 2
        and not (tmp_path / "model.safetensors").exists()
        and same(found, read_checkpoint(bert))
    )
    assert "prediction head bias" in all_weights(found)
    found.files[-1].rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=r"index\.json names model-.*which is missing"):
        read_checkpoint(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(
        json.dumps({"weight_map": {"bert.x": "../secret.safetensors"}}), encoding="utf-8"
    )
    with pytest.raises(DataError, match=r"names \.\./secret"):
        read_checkpoint(tmp_path)


def test_names_and_numbers_of_old_files_are_read(bert: Path, tmp_path: Path) -> None:
    """As in the file of the first BERT: gamma and beta, a table of positions as numbers, a head for
    the next sentence.
    """
    copy = Path(shutil.copytree(bert, tmp_path / "old"))
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in load_file(bert / "model.safetensors").items()
    }
    extra = {
        "bert.embeddings.position_ids": torch.arange(8)[None],
        "cls.seq_relationship.weight": torch.zeros(2, 32),
    }
    save_file({**old, **extra}, copy / "model.safetensors")
    assert any("gamma" in name for name in old) and same(
        read_checkpoint(copy), read_checkpoint(bert)
    )
    save_file({name: tensor.bfloat16() for name, tensor in old.items()}, copy / "model.safetensors")
    halves = all_weights(read_checkpoint(copy))
    assert all(tensor.dtype == torch.float32 for tensor in halves.values()) and not same(
        read_checkpoint(copy), read_checkpoint(bert)
    )


def changed(bert: Path, folder: Path, **config: Any) -> Path:
    """A copy with other keys in its configuration."""
    copy = Path(shutil.copytree(bert, folder))
    found = json.loads((copy / "config.json").read_text(encoding="utf-8"))
    (copy / "config.json").write_text(json.dumps({**found, **config}), encoding="utf-8")
    return copy


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"model_type": "t5"},
            (
                r"no encoder for model_type = 't5'\. "
                r"tasklm reads bert, electra, albert, modernbert, roberta"
            ),
        ),
        ({"hidden_act": "relu"}, r"does not support hidden_act = 'relu' \(not 'gelu'\)"),
        ({"is_decoder": True}, "does not support is_decoder = True"),
        ({"layer_norm_eps": 1e-6}, r"layer_norm_eps = 1e-06 \(not 1e-12 or 1e-05\)"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type = 'relative_key'"),
        (
            {"hidden_size": 64},
            (
                r"the weights do not match config\.json "
                r"\(token\.weight has \(\d+, 32\), not \(\d+, 64\)\)"
            ),
        ),
        ({"num_hidden_layers": 5}, r"the weights lack encoder\.layer\.4"),
        ({"model_type": "roberta", "pad_token_id": None}, "positions without a pad_token_id"),
    ],
)
def test_what_is_computed_otherwise_is_refused_by_name(
    bert: Path, tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=rf"{tmp_path}.*{message}"):
        read_checkpoint(changed(bert, tmp_path / "copy", **config))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"local_attention": 64}, r"local_attention = 64 \(not 128\)"),
        ({"global_attn_every_n_layers": 2}, "local attention in other layers than ModernBERT's"),
        (
            {"global_rope_theta": 10_000.0},
            r"rope_theta of global layers = 10000\.0 \(not 160000\.0\)",
        ),
        ({"local_rope_theta": 500.0}, r"rope_theta of local layers = 500\.0 \(not 10000\.0\)"),
        ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling"),
        ({"layer_types": ["full_attention"] * 4}, r"rope_theta = 160000\.0 \(not 10000\.0\)"),
    ],
)
def test_another_attention_of_modernbert_is_refused(
    tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    """In configurations as published with the first checkpoints, which transformers reads too."""
    write_checkpoint(tmp_path / "new", "modernbert", transformers)
    published = {
        "layer_types": None,
        "rope_parameters": None,
        "global_attn_every_n_layers": 3,
        "local_attention": 128,
    }
    published |= {"global_rope_theta": 160_000.0, "local_rope_theta": 10_000.0}
    assert (
        read_checkpoint(changed(tmp_path / "new", tmp_path / "old", **published)).encoder
        == "modernbert"
    )
    with pytest.raises(DataError, match=message):
        read_checkpoint(changed(tmp_path / "new", tmp_path / "copy", **{**published, **config}))


def test_files_that_are_missing_or_damaged_are_named_with_the_way_out(
    bert: Path, tmp_path: Path
) -> None:
    def refused(name: str, message: str) -> None:
        with pytest.raises(DataError, match=message):
            read_checkpoint(tmp_path / name)

    copy = Path(shutil.copytree(bert, tmp_path / "cut")) / "model.safetensors"
    copy.write_bytes(copy.read_bytes()[:-100])
    refused("cut", r"cut/model\.safetensors: damaged .*Copy the folder again")
    copy.unlink()
    refused("cut", r"there are no weights \(model\.safetensors\)")
    (copy.parent / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    refused(
        "cut",
        r"weights are pickled.*convert it, .*with transformers: BertForMaskedLM\.from_pretrained",
    )
    (Path(shutil.copytree(bert, tmp_path / "mute")) / "tokenizer.json").unlink()
    refused("mute", r"there is no tokenizer\.json.*AutoTokenizer\.from_pretrained")
    (Path(shutil.copytree(bert, tmp_path / "odd")) / "config.json").write_text(
        "{", encoding="utf-8"
    )
    refused("odd", r"odd/config\.json: cannot be read")
    (tmp_path / "odd" / "config.json").write_text("[]", encoding="utf-8")
    refused("odd", "is not a JSON object")


def test_a_name_of_the_hub_is_looked_up_in_its_cache(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        DataError, match=r"no folder tiny-bert, and no model of this name .*hf download tiny-bert"
    ):
        find_checkpoint(Path("tiny-bert"))
    model = tmp_path / "hub" / "models--someone--tiny-bert"
    for version in ("abc", "def"):
        shutil.copytree(bert, model / "snapshots" / version)
    with pytest.raises(DataError, match=r"has 2 versions of tiny-bert"):
        find_checkpoint(Path("tiny-bert"))
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("def", encoding="utf-8")
    for name in ("someone/tiny-bert", "tiny-bert"):
        assert find_checkpoint(Path(name)) == model / "snapshots" / "def"
    shutil.copytree(model, tmp_path / "hub" / "models--another--tiny-bert")
    with pytest.raises(
        DataError,
        match=r"several models called tiny-bert\. Choose from another/tiny-bert, someone/tiny-bert",
    ):
        find_checkpoint(Path("tiny-bert"))
    shutil.copytree(bert, tmp_path / "tiny-bert")
    assert find_checkpoint(Path("tiny-bert")) == Path("tiny-bert")  # a folder comes first
    (tmp_path / "a-file").touch()
    assert (
        find_checkpoint(Path("a-file")) is None
        and find_checkpoint(tmp_path / "nowhere") is None
        and find_checkpoint(tmp_path) is None
    )


def test_the_cache_is_where_the_hubs_own_library_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub")
    code = "from huggingface_hub.constants import HF_HUB_CACHE; print(HF_HUB_CACHE)"
    for name in ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for given in ({}, {"XDG_CACHE_HOME": "/x"}, {"HF_HOME": "~/y"}, {"HF_HUB_CACHE": "/z"}):
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        said = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stdout.strip()
        assert Path(said) == hub_cache()
