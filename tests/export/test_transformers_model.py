"""Folders for transformers: it loads them without code of ours and computes the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, processors

from tasklm.errors import RecipeError
from tasklm.export.source import Source, open_source
from tasklm.export.tokenizer_files import write_tokenizer
from tasklm.export.transformers_model import write_transformers
from tasklm.models.task_model import ModelDescription, save_models
from tasklm.recipe.model_sections import Tokens
from tasklm.storage.files import write_json
from tasklm.tasks.examples import Example
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.tokenizer import Vocabulary, train_vocabulary
from tests.conftest import sentences
from tests.export.samples import LENGTH, examples, rows_of, saved

SEQUENCE = "ForSequenceClassification"
LOADERS = {"choice": "ForMultipleChoice", "tag": "ForTokenClassification"} | dict.fromkeys(
    ("classify", "multilabel", "regress"), SEQUENCE
)
EXACT = [
    ("classify", "bert", 0),
    ("classify", "bert", 8),
    ("classify", "roberta", 0),
    ("classify", "albert", 8),
    ("classify", "modern", 0),
    ("multilabel", "bert", 0),
    ("multilabel", "modern", 0),
    ("regress", "bert", 0),
    ("regress", "modernbert", 0),
    ("choice", "bert", 8),
    ("choice", "modern", 0),
    ("tag", "bert", 0),
    ("tag", "albert", 0),
    ("tag", "albert", 8),
    ("tag", "modern", 0),
]


@pytest.fixture(scope="module")
def transformers() -> Any:
    return pytest.importorskip(
        "transformers", reason="transformers is not installed: nothing to compare with"
    )


def loaded(source: Source, ending: str, transformers: Any, folder: Path) -> Any:
    """The model as transformers loads it, with every weight in its place."""
    folder.mkdir()
    name = write_transformers(source, folder)
    theirs, info = getattr(transformers, f"AutoModel{ending}").from_pretrained(
        folder, output_loading_info=True
    )
    assert type(theirs).__name__ == name and not any(
        info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")
    )
    return theirs.eval()


@pytest.mark.parametrize(("kind", "encoder", "embedding"), EXACT)
def test_transformers_computes_the_same(
    kind: str,
    encoder: str,
    embedding: int,
    transformers: Any,
    vocabulary: Vocabulary,
    tmp_path: Path,
) -> None:
    source = saved(tmp_path / "model", vocabulary, kind, encoder, embedding)
    theirs = loaded(source, LOADERS[kind], transformers, tmp_path / "out")
    encoded = rows_of(source)
    batch = encoded.padded(np.arange(len(encoded)))
    assert kind == "tag" or batch.segments is not None
    assert bool((batch.pieces == 0).any())
    with torch.no_grad():
        ours = source.model(batch)
        given = {"input_ids": batch.ids, "attention_mask": (batch.pieces > 0).long()}
        if batch.segments is not None and "modern" not in encoder:
            given["token_type_ids"] = batch.segments
        if kind == "choice":
            given = {key: tensor.view(-1, 3, tensor.shape[-1]) for key, tensor in given.items()}
        found = theirs(**given).logits
    if kind == "tag":
        assert batch.places is not None
        found = found.gather(1, batch.places[..., None].expand(-1, -1, found.shape[-1]))
    torch.testing.assert_close(found.reshape(ours.shape), ours, atol=1e-4, rtol=0)
    assert float(ours.std()) > 0.01  # there is something to compare


def test_local_layers_of_modernbert(
    transformers: Any, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    """Of rows that are longer than the 129 tokens that a local layer sees, with padding, every
    token's tags.
    """
    source = saved(tmp_path / "model", vocabulary, "tag", "modernbert", layers=4, length=192)
    theirs = loaded(source, "ForTokenClassification", transformers, tmp_path / "out")
    assert theirs.config.layer_types == [
        "full_attention",
        "sliding_attention",
        "sliding_attention",
        "full_attention",
    ]
    ids = torch.randint(5, len(vocabulary), (3, 192), generator=torch.Generator().manual_seed(1))
    columns = torch.arange(192).expand(3, -1)
    mask = (columns < torch.tensor([[192], [150], [7]])).long()
    with torch.no_grad():
        ours = source.model(TokenBatch(ids, mask, columns, places=columns))
        found = theirs(input_ids=ids, attention_mask=mask).logits
    torch.testing.assert_close(found[mask > 0], ours[mask > 0], atol=1e-4, rtol=0)


def test_the_tokenizer_of_modernbert_has_no_segments(
    transformers: Any, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    source = saved(tmp_path / "model", vocabulary, encoder="modern")
    theirs = loaded(source, SEQUENCE, transformers, tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    given = tokenizer(["a dog"], ["cold water"], return_tensors="pt")
    assert set(given) == {"input_ids", "attention_mask"}
    encoded = rows_of(source, [Example(("a dog", "cold water"), None)])
    torch.testing.assert_close(
        theirs(**given).logits, source.model(encoded.padded(np.arange(1)))[:, 0], atol=1e-4, rtol=0
    )


def test_its_tokenizer_gives_our_rows(
    transformers: Any, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    source = saved(tmp_path / "model", vocabulary)
    (tmp_path / "out").mkdir()
    write_transformers(source, tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.model_max_length == LENGTH
    assert (tokenizer.pad_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id) == (
        vocabulary.pad,
        vocabulary.cls,
        vocabulary.sep,
    )
    assert (tokenizer.unk_token_id, tokenizer.mask_token_id) == (vocabulary.unk, vocabulary.mask)
    given = examples("classify")
    for example, unit in zip(given, rows_of(source, given).units, strict=True):
        found = tokenizer(*example.texts, truncation=True)
        assert found["input_ids"] == unit.tokens
        wanted = [
            int(bool(unit.second) and column >= unit.second) for column in range(len(unit.tokens))
        ]
        assert found["token_type_ids"] == wanted and set(found["attention_mask"]) == {1}
    for text in (
        "Café CAFE\u0301 naïve",
        "[MASK] the Cat",
        "水 the cat",
    ):  # accents are kept, as we keep them
        assert (
            tokenizer(text, add_special_tokens=False)["input_ids"] == vocabulary.encode([text])[0]
        )


@pytest.mark.parametrize(
    ("kind", "lowercase"), [("wordpiece", False), ("bpe", True), ("unigram", False)]
)
def test_every_kind_of_vocabulary_is_read_as_it_is(
    kind: str, lowercase: bool, transformers: Any, tmp_path: Path
) -> None:
    texts = [*sentences(300), "Café naïve Ünï"]
    vocabulary = train_vocabulary([texts], Tokens(kind=kind, lowercase=lowercase), 400)
    write_tokenizer(tmp_path, vocabulary, LENGTH, segments=True, cuts=False)
    write_json(tmp_path / "config.json", {"model_type": "electra"})
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    asked = [
        "The Cat likes  music .",
        " a dog",
        "Café CAFE\u0301 naïve",
        "水 the\tcat\n",
        "unheard-of words",
    ]
    for text, numbers in zip(asked, vocabulary.encode(asked), strict=True):
        assert tokenizer(text)["input_ids"] == vocabulary.around(numbers)


def test_special_tokens_of_other_names(transformers: Any, tmp_path: Path) -> None:
    """A vocabulary in RoBERTa's names, whose own pairs have two marks between the texts: ours have
    one.
    """
    own = train_vocabulary([sentences(300)], Tokens(kind="bpe"), 400).tokenizer.to_str()
    names = {
        "[PAD]": "<pad>",
        "[UNK]": "<unk>",
        "[CLS]": "<s>",
        "[SEP]": "</s>",
        "[MASK]": "<mask>",
    }
    for ours, theirs in names.items():
        own = own.replace(ours, theirs)
    tokenizer = Tokenizer.from_str(own)
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", tokenizer.token_to_id("</s>")), ("<s>", tokenizer.token_to_id("<s>"))
    )
    vocabulary = Vocabulary(tokenizer)
    write_tokenizer(tmp_path, vocabulary, LENGTH, segments=True, cuts=False)
    write_json(tmp_path / "config.json", {"model_type": "electra"})
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path)
    one, other = vocabulary.encode(["a dog", "music"])
    assert loaded("a dog", "music")["input_ids"] == [
        *vocabulary.around(one),
        *other,
        vocabulary.sep,
    ]
    assert (loaded.cls_token, loaded.sep_token, loaded.pad_token, loaded.mask_token) == (
        "<s>",
        "</s>",
        "<pad>",
        "<mask>",
    )


def test_label_names_are_kept(transformers: Any, vocabulary: Vocabulary, tmp_path: Path) -> None:
    source = saved(tmp_path / "model", vocabulary)
    (tmp_path / "out").mkdir()
    write_transformers(source, tmp_path / "out")
    config = transformers.AutoConfig.from_pretrained(tmp_path / "out")
    assert config.id2label == dict(enumerate(source.task.labels)) and config.label2id == {
        n: i for i, n in enumerate(source.task.labels)
    }
    assert config.problem_type == "single_label_classification"
    classify = transformers.pipeline(
        "text-classification", str(tmp_path / "out"), device="cpu", top_k=None
    )
    ours = (
        source.model(rows_of(source, examples("classify")[:1]).padded(np.arange(1)))
        .detach()[0, 0]
        .softmax(-1)
    )
    found = {one["label"]: one["score"] for one in classify([examples("classify")[0].text])[0]}
    assert found == pytest.approx(
        dict(zip(source.task.labels, ours.tolist(), strict=True)), abs=1e-4
    )


def test_written_without_transformers(vocabulary: Vocabulary, tmp_path: Path) -> None:
    source = saved(tmp_path / "model", vocabulary, embedding=8)
    (tmp_path / "out").mkdir()
    assert write_transformers(source, tmp_path / "out") == "ElectraForSequenceClassification"
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert (
        config["id2label"] == {"0": "no", "1": "yes – ja", "2": "“maybe”"}
        and config["embedding_size"] == 8
    )
    assert config["max_position_embeddings"] == LENGTH and config["pad_token_id"] == vocabulary.pad
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }


@pytest.mark.parametrize(
    ("kind", "encoder", "embedding", "words"),
    [
        ("classify", "modern", 8, "separate embedding width.*--to onnx"),
        ("classify", "albert", 0, "tanh.*--to onnx"),
        ("span", "bert", 0, "span.*tasklm predict"),
    ],
)
def test_what_cannot_be_held_exactly_is_refused(
    kind: str, encoder: str, embedding: int, words: str, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    source = saved(tmp_path / "model", vocabulary, kind, encoder, embedding)
    with pytest.raises(RecipeError, match=words):
        write_transformers(source, tmp_path)


def test_a_head_from_before_norms_predicts_and_is_refused(
    vocabulary: Vocabulary, tmp_path: Path
) -> None:
    source = saved(tmp_path / "model", vocabulary, encoder="modern")
    source.model.head = source.task.head(source.shape.width, 0.0)
    save_models(
        tmp_path / "old",
        ModelDescription("modern", source.shape, source.task, vocabulary, LENGTH),
        [source.model],
        source.config["about"],
    )
    old = open_source(tmp_path / "old")
    batch = rows_of(old).padded(np.arange(4))
    torch.testing.assert_close(old.model(batch), source.model(batch), atol=0, rtol=0)
    with pytest.raises(RecipeError, match=r"older version.*Train it again"):
        write_transformers(old, tmp_path)


def test_a_head_that_reads_at_marks_is_refused(vocabulary: Vocabulary, tmp_path: Path) -> None:
    with pytest.raises(
        RecipeError, match=r"reads markers in the text \(<< \[\[\)\. Export it with --to onnx\. A"
    ):
        write_transformers(saved(tmp_path / "model", vocabulary, marks=["<<", "[["]), tmp_path)


def test_a_crf_is_refused(vocabulary: Vocabulary, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"CrfHead.*tasklm predict"):
        write_transformers(saved(tmp_path / "model", vocabulary, "tag", crf=True), tmp_path)
