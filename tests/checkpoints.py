"""Tiny checkpoints with random weights, as transformers writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from tasklm.recipe.model_sections import Tokens
from tasklm.tokens.tokenizer import train_vocabulary
from tests.conftest import sentences
from tests.encoders.samples import stir

WORDS = [
    "the quick brown foxes jumped over several extraordinarily sleepy dogs, twice",
    "größere wörter",
]
TEXTS = [*sentences(300), *20 * WORDS, *200 * ["## a"], "日本語 – and\nnew lines"]
ROBERTA_NAMES = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
BERT_NAMES = {role: f"[{role.upper()}]" for role in ROBERTA_NAMES}
ALBERT_NAMES = {**BERT_NAMES, "pad": "<pad>", "unk": "<unk>"}
NUMBERS = {
    "num_hidden_layers": 4,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
POST_NORM = {**NUMBERS, "max_position_embeddings": 160}
ROBERTA = {
    **NUMBERS,
    "max_position_embeddings": 162,
    "pad_token_id": 1,
    "layer_norm_eps": 1e-5,
    "type_vocab_size": 1,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {  # name → class, configuration
    "bert": ("BertForMaskedLM", POST_NORM),
    "bert, headless": ("BertModel", POST_NORM),
    "roberta": ("RobertaForMaskedLM", ROBERTA),
    "roberta, two segments": (
        "RobertaForMaskedLM",
        {**ROBERTA, "layer_norm_eps": 1e-12, "type_vocab_size": 2},
    ),
    "xlm-roberta": ("XLMRobertaForMaskedLM", ROBERTA),
    "camembert": ("CamembertForMaskedLM", ROBERTA),
    "electra": ("ElectraForPreTraining", {**POST_NORM, "embedding_size": 16}),
    "electra, generator": ("ElectraForMaskedLM", {**POST_NORM, "embedding_size": 16}),
    "electra, one width": ("ElectraForPreTraining", {**POST_NORM, "embedding_size": 32}),
    "albert": ("AlbertForMaskedLM", {**POST_NORM, "embedding_size": 16}),
    "modernbert": ("ModernBertForMaskedLM", {**NUMBERS, "max_position_embeddings": 512}),
}


def names_of(model: str) -> dict[str, str]:
    """Returns role → special token, as models of this family have them."""
    family = model.split(",")[0]
    return (
        ALBERT_NAMES
        if family == "albert"
        else BERT_NAMES
        if family in ("bert", "electra", "modernbert")
        else ROBERTA_NAMES
    )


def tokenizer_of(model: str) -> Tokenizer:
    """A tokenizer of the kind that models of this family have."""
    names, family = names_of(model), model.split(",")[0]
    if family in ("bert", "electra"):
        tokenizer = train_vocabulary([TEXTS], Tokens(), 300).tokenizer
    elif family in ("albert", "xlm-roberta", "camembert"):
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.normalizer = normalizers.Lowercase()
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
        trainer: Any = trainers.UnigramTrainer(
            vocab_size=260,
            special_tokens=list(names.values()),
            unk_token=names["unk"],
            show_progress=False,
        )
        tokenizer.train_from_iterator(TEXTS, trainer)
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=400,
            special_tokens=list(names.values()),
            initial_alphabet=alphabet,
            show_progress=False,
        )
        tokenizer.train_from_iterator(TEXTS, trainer)
    ends = [(names[role], tokenizer.token_to_id(names[role])) for role in ("sep", "cls")]
    tokenizer.post_processor = (
        processors.RobertaProcessing(*ends)
        if names is ROBERTA_NAMES
        else processors.BertProcessing(*ends)
    )
    return tokenizer


def write_checkpoint(
    folder: Path, model: str, transformers: Any, spread: float = 0.2, **changes: Any
) -> Any:
    """Writes a checkpoint into a folder and returns the model; `changes` are of its configuration,
    `shards` the size of its files.
    """
    tokenizer, names = tokenizer_of(model), names_of(model)
    shards = {"max_shard_size": changes.pop("shards")} if "shards" in changes else {}
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **{f"{role}_token": name for role, name in names.items()}
    )
    wrapped.save_pretrained(folder)
    title, numbers = MODELS[model]
    kind = getattr(transformers, title)
    numbers = {
        "vocab_size": tokenizer.get_vocab_size(),
        "pad_token_id": tokenizer.token_to_id(names["pad"]),
        **numbers,
        **changes,
    }
    torch.manual_seed(0)
    made = kind(kind.config_class(**numbers)).eval()
    stir(made, spread)
    made.save_pretrained(folder, **shards)
    return made
