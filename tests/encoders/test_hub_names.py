from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from tasklm.encoders.base import ENCODERS
from tasklm.encoders.checkpoints.hub_families import FAMILIES
from tasklm.encoders.checkpoints.hub_names import (
    from_hugging_face,
    head_from_hugging_face,
    to_hugging_face,
)
from tasklm.errors import DataError
from tests.encoders.samples import KINDS, rows_of, stir, stirred, texts

EXPORTED = [kind for kind in KINDS if kind != "modern, narrow"]


def write(folder: Path, config: dict[str, Any], state: dict[str, Tensor]) -> None:
    (folder / "config.json").write_text(json.dumps(config))
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def head_of(encoder: Any, bias: bool = True) -> nn.ModuleDict:
    """A prediction head as objectives own one, of the widths that the encoder asks for."""
    head = nn.ModuleDict()
    head["dense"] = nn.Linear(encoder.shape.width, encoder.token.embedding_dim, bias=bias)
    head["norm"] = nn.LayerNorm(encoder.token.embedding_dim, encoder.epsilon, bias=bias)
    head.register_parameter("bias", nn.Parameter(torch.zeros(encoder.shape.vocabulary)))
    stir(head)
    return head


def logits_of(encoder: Any, head: nn.ModuleDict, hidden: Tensor) -> Tensor:
    inner = functional.gelu(head["dense"](hidden), approximate=encoder.gelu)
    return functional.linear(head["norm"](inner), encoder.token.weight, head.bias)


@pytest.fixture(scope="module")
def transformers() -> Any:
    return pytest.importorskip("transformers")


@pytest.mark.parametrize("kind", EXPORTED)
def test_transformers_computes_the_same(kind: str, transformers: Any, tmp_path: Path) -> None:
    encoder = stirred(kind)
    write(tmp_path, *to_hugging_face(KINDS[kind][0], encoder.shape, encoder.state_dict()))
    theirs, info = transformers.AutoModel.from_pretrained(
        tmp_path, attn_implementation="eager", output_loading_info=True
    )
    assert not info["unexpected_keys"] and all(
        key.startswith("pooler") for key in info["missing_keys"]
    )
    batch = rows_of(texts(9, 16, 5))
    segments = {}
    if "modern" not in kind:
        batch.segments = torch.randint(2, batch.ids.shape)
        segments = {"token_type_ids": batch.segments}
    real = batch.pieces == 1
    ours = encoder(batch)[real]
    torch.testing.assert_close(
        theirs.eval()(batch.ids, real.long(), **segments).last_hidden_state[real],
        ours,
        atol=1e-5,
        rtol=1e-5,
    )
    batch.segments = None  # the first segment everywhere, there as here
    torch.testing.assert_close(
        theirs(batch.ids, real.long()).last_hidden_state[real],
        encoder(batch)[real],
        atol=1e-5,
        rtol=1e-5,
    )


@pytest.mark.parametrize("kind", EXPORTED)
def test_transformers_models_are_read(kind: str, transformers: Any) -> None:
    """Both ways, with a prediction head: its model in our names computes the same."""
    torch.manual_seed(1)
    name, shape = KINDS[kind]
    config, _ = to_hugging_face(
        name,
        shape,
        ENCODERS.get(name)(shape).state_dict(),
        head_of(ENCODERS.get(name)(shape), False).state_dict(),
    )
    theirs = transformers.AutoModelForMaskedLM.from_config(
        transformers.AutoConfig.for_model(**config)
    ).eval()
    stir(theirs)
    written = json.loads(theirs.config.to_json_string())  # what config.json holds
    found, same, state = from_hugging_face(written, theirs.state_dict())
    assert (found, same) == (name, shape)
    encoder = ENCODERS.get(found)(same).eval()
    encoder.load_state_dict(state)
    head = head_of(encoder, bias="modern" not in kind)
    head.load_state_dict(head_from_hugging_face(written, theirs.state_dict()))
    batch = rows_of(texts(9, 16, 5))
    real = batch.pieces == 1
    wanted = theirs(batch.ids, attention_mask=real.long()).logits[real]
    torch.testing.assert_close(
        logits_of(encoder, head, encoder(batch))[real], wanted, atol=1e-4, rtol=1e-5
    )


@pytest.mark.parametrize(
    ("kind", "bias"), [*((kind, True) for kind in EXPORTED), ("modern", False)]
)
def test_prediction_heads_go_with_the_encoder(
    kind: str, bias: bool, transformers: Any, tmp_path: Path
) -> None:
    encoder = stirred(kind)
    head = head_of(encoder, bias)
    config, state = to_hugging_face(
        KINDS[kind][0], encoder.shape, encoder.state_dict(), head.state_dict()
    )
    write(tmp_path, config, state)
    theirs, info = transformers.AutoModelForMaskedLM.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert type(theirs).__name__ == config["architectures"][0]
    assert not info["unexpected_keys"] and not info["missing_keys"]
    batch = rows_of(texts(9, 16, 5))
    real = batch.pieces == 1
    wanted = logits_of(encoder, head, encoder(batch))[real]
    torch.testing.assert_close(
        theirs.eval()(batch.ids, attention_mask=real.long()).logits[real],
        wanted,
        atol=1e-4,
        rtol=1e-5,
    )


@pytest.mark.parametrize("kind", EXPORTED)
def test_there_and_back_changes_nothing(kind: str) -> None:
    encoder, (name, shape) = stirred(kind), KINDS[kind]
    head = head_of(encoder)
    for own_head in (None, head.state_dict()):
        config, state = to_hugging_face(name, shape, encoder.state_dict(), own_head)
        found, same, back = from_hugging_face(config, state)
        assert (found, same) == (name, shape) and back.keys() == encoder.state_dict().keys()
        assert all(torch.equal(back[key], tensor) for key, tensor in encoder.state_dict().items())
    again = head_from_hugging_face(config, state)
    assert again.keys() == head.state_dict().keys() and all(
        torch.equal(again[key], tensor) for key, tensor in head.state_dict().items()
    )


@pytest.mark.parametrize("kind", FAMILIES)
def test_what_a_configuration_leaves_out_is_its_default(kind: str, transformers: Any) -> None:
    default = transformers.AutoConfig.for_model(kind).to_dict()
    assert {key: default.get(key, False) for key in FAMILIES[kind].fixed} == FAMILIES[kind].fixed
    assert set(FAMILIES[kind].numbers.values()) <= set(
        json.loads(transformers.AutoConfig.for_model(kind).to_json_string())
    )


def test_what_is_computed_otherwise_is_refused() -> None:
    encoder = stirred("modern")
    config, state = to_hugging_face("modern", encoder.shape, encoder.state_dict())
    local = {**config, "layer_types": ["full_attention", "sliding_attention", "full_attention"]}
    with pytest.raises(DataError, match="local attention"):
        from_hugging_face(local, state)
    with pytest.raises(DataError, match=r"rope_theta = 160000\.0"):
        from_hugging_face(
            {**config, "rope_parameters": {"full_attention": {"rope_theta": 160_000.0}}}, state
        )
    with pytest.raises(DataError, match="has a bias"):
        from_hugging_face(config, {**state, "final_norm.bias": torch.ones(32)})
    with pytest.raises(DataError, match="separate embedding width"):
        to_hugging_face("modern", KINDS["modern, narrow"][1], state)
    bert = stirred("bert")
    config, state = to_hugging_face("bert", bert.shape, bert.state_dict())
    with pytest.raises(DataError, match="hidden_act = 'relu'"):
        from_hugging_face({**config, "hidden_act": "relu"}, state)
    del state["encoder.layer.1.attention.self.key.weight"]
    with pytest.raises(DataError, match=r"lack encoder\.layer\.1\.attention\.self"):
        from_hugging_face(config, state)
    with pytest.raises(DataError, match="no prediction head"):
        head_from_hugging_face(config, state)
    with pytest.raises(DataError, match="model_type = 'xlnet'"):
        from_hugging_face({"model_type": "xlnet"}, state)
