"""The vocabulary as other programs read it: with special tokens around a text or a pair."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, processors

from tasklm.storage.files import write_json, write_text
from tasklm.tokens.tokenizer import ROLES, Vocabulary


def special_names(vocabulary: Vocabulary) -> dict[str, str]:
    """Maps role (pad, unk, cls, sep, mask) → token."""
    return {
        role: str(vocabulary.tokenizer.id_to_token(number))
        for role, number in zip(ROLES, vocabulary.specials, strict=True)
    }


def write_tokenizer(
    folder: Path, vocabulary: Vocabulary, length: int, segments: bool, cuts: bool
) -> None:
    """Writes tokenizer.json and tokenizer_config.json.

    `segments`: the model reads token_type_ids. `cuts`: tokenizer.json itself sets rows of at most
    `length` tokens, padded to the longest, for programs that use only the library tokenizers;
    transformers decides this by its arguments.
    """
    names = special_names(vocabulary)
    tokenizer = Tokenizer.from_str(vocabulary.tokenizer.to_str())
    cls, sep = names["cls"], names["sep"]
    second = int(segments)  # the segment of the second text
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:{second} {sep}:{second}",
        special_tokens=[(cls, vocabulary.cls), (sep, vocabulary.sep)],
    )
    if cuts:
        tokenizer.enable_truncation(length)
        tokenizer.enable_padding(pad_id=vocabulary.pad, pad_token=names["pad"])
    write_text(folder / "tokenizer.json", tokenizer.to_str(pretty=False))
    inputs = ["input_ids", "attention_mask"]
    if segments:
        inputs.insert(1, "token_type_ids")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": length,
        "model_input_names": inputs,
    }
    roles = {f"{role}_token": name for role, name in names.items()}
    write_json(
        folder / "tokenizer_config.json", {**config, "clean_up_tokenization_spaces": False, **roles}
    )
