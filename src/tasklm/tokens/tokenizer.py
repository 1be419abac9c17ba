"""The subword vocabulary: trained on the selected and the task text, or loaded from a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from tasklm.errors import DataError
from tasklm.recipe import Tokens
from tasklm.runs import write_text
from tasklm.tokens.wordpiece import count_words, learn

PAD, UNK, CLS, SEP, MASK = SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


class Vocabulary:
    """A `tokenizers` model plus the numbers of the special tokens."""

    def __init__(self, tokenizer: Tokenizer, file: Path | None = None) -> None:
        self.tokenizer = tokenizer
        known = tokenizer.get_vocab(with_added_tokens=True)
        missing = [special for special in SPECIALS if special not in known]
        if missing:
            raise DataError(f"the tokenizer has no {missing[0]} token", file=file, remedy=f"It needs {', '.join(SPECIALS)}.")
        self.specials: list[int] = [known[special] for special in SPECIALS]
        self.pad, self.unk, self.cls, self.sep, self.mask = self.specials

    def __len__(self) -> int:
        return int(self.tokenizer.get_vocab_size())

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns token numbers per text, without special tokens."""
        return [encoding.ids for encoding in self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def decode(self, numbers: Sequence[int]) -> str:
        """Returns the text of token numbers, special tokens included, for a person to look at."""
        return str(self.tokenizer.decode(list(numbers), skip_special_tokens=False))

    def continuing(self) -> np.ndarray:
        """Returns for every token whether it goes on with the word before it: a mark says so (##), or the lack of one (▁, Ġ).

        Without a mark of its own, a token that begins with a sign and not with a letter or digit is a word.
        """
        texts = [str(self.tokenizer.id_to_token(number)) for number in range(len(self))]
        if any(text.startswith("##") for text in texts):
            found = [text.startswith("##") for text in texts]
        else:
            found = [text[:1] not in "▁Ġ" and (text[:1].isalnum() or ord(text[0]) > 127) for text in texts]
        found_array = np.array(found, bool)
        found_array[self.specials] = False
        return found_array

    def save(self, path: Path) -> None:
        """Writes tokenizer.json."""
        write_text(path, self.tokenizer.to_str(pretty=False))

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Returns the vocabulary of a tokenizer.json."""
        try:
            return cls(Tokenizer.from_str(path.read_text(encoding="utf-8")), path)
        except FileNotFoundError:
            raise DataError("there is no such tokenizer", file=path, remedy="Give another tokens.file.") from None
        except DataError:
            raise
        except Exception as error:  # the library raises plain Exception for any malformed file
            raise DataError(f"not a tokenizer.json ({error})", file=path, remedy="Give another file in tokens.file.") from None


def vocabulary_size(words: int) -> int:
    """Returns the default number of subword types for so many words of text.

    Heaps' law gives about words^0.5 to words^0.6 distinct words; small text gets a small table, so that most rows of
    the embedding are seen often enough to be learnt. The top is BERT's 30,522.
    """
    return max(1000, min(30_522, int(4 * max(words, 1) ** 0.5) // 500 * 500))


def train_vocabulary(texts: Iterable[Sequence[str]], settings: Tokens, size: int) -> Vocabulary:
    """Returns a vocabulary of at most `size` types learnt from batches of text; needs two occurrences per type.

    WordPiece and BPE come out the same every time. The library's Unigram trainer does not: a run keeps the vocabulary it
    trained, but another run on the same data gets a slightly different one.
    """
    # accents are kept: in many languages they tell words apart
    normalizer = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=False, lowercase=settings.lowercase)
    if settings.kind == "wordpiece":
        counts = count_words(texts, normalizer)
        known = learn(counts, size, SPECIALS, alphabet=max(1000, size // 4))
        tokenizer = Tokenizer(models.WordPiece(known, unk_token=UNK, max_input_chars_per_word=100))
        tokenizer.add_special_tokens(list(SPECIALS))
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        tokenizer.normalizer = normalizer
        return Vocabulary(tokenizer)
    common: dict[str, Any] = {"vocab_size": size, "special_tokens": list(SPECIALS), "show_progress": False}
    trainer: Any
    if settings.kind == "bpe":
        tokenizer = Tokenizer(models.BPE(unk_token=UNK))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(min_frequency=2, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **common)
    else:
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(unk_token=UNK, **common)
    tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(texts, trainer)
    return Vocabulary(tokenizer)
