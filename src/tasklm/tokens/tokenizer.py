"""The subword vocabulary: trained on the selected and the task text, or loaded from a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from tasklm.errors import DataError, RecipeError, RunError
from tasklm.recipe.model_sections import Tokens
from tasklm.storage.files import write_json, write_text
from tasklm.storage.safe_reading import is_there, parse_json, read_json_file, read_text
from tasklm.tokens.tokenizer_checks import check_tokenizer
from tasklm.tokens.wordpiece import count_words, learn

PAD, UNK, CLS, SEP, MASK = SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# what a special token is for → what it is called: by us and BERT, by RoBERTa and SentencePiece
ROLES = {
    "pad": (PAD, "<pad>"),
    "unk": (UNK, "<unk>"),
    "cls": (CLS, "<s>", "<cls>"),
    "sep": (SEP, "</s>", "<sep>"),
    "mask": (MASK, "<mask>"),
}
ROLE_FILES = (
    "special_tokens_map.json",
    "tokenizer_config.json",
)  # where a Hugging Face folder declares it; the first one has precedence
WORD_STARTS = (
    "▁",
    "ĠĊĉč",
)  # marks of SentencePiece; of byte-level BPE (a space, a new line, a tab, a carriage return)


class Vocabulary:
    """A `tokenizers` model plus the numbers of the special tokens.

    `names` (role → token) names them. Without it the tokens that the tokenizer puts around a text
    are [CLS] and [SEP], and the others are recognised by their usual names.
    """

    def __init__(
        self, tokenizer: Tokenizer, file: Path | None = None, names: Mapping[str, str] | None = None
    ) -> None:
        tokenizer.no_truncation()  # a published tokenizer.json may ask for rows of one length
        tokenizer.no_padding()
        self.tokenizer, self._file = tokenizer, file
        known = tokenizer.get_vocab(with_added_tokens=True)
        self._names = {**_special_names(tokenizer, known), **(names or {})}
        for role, usual in ROLES.items():
            if self._names.get(role, usual[0]) not in known:
                wanted = self._names.get(role, " or ".join(usual))
                remedy = (
                    f"Give one that has it, or name its own in a "
                    f'{ROLE_FILES[0]} beside it: {{"{role}_token": …}}.'
                )
                raise DataError(f"the tokenizer has no {wanted} token", file=file, remedy=remedy)
        self.specials: list[int] = [known[self._names[role]] for role in ROLES]
        self.pad, self.unk, self.cls, self.sep, self.mask = self.specials
        self._size = 1 + max(known.values())  # numbers may be left out

    def __len__(self) -> int:
        return self._size

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token numbers per text, without special tokens."""
        with self._failures_in_words():
            encodings = self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
            return [encoding.ids for encoding in encodings]

    def spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The tokens of a text, and (begin, end) of the characters that each stands for."""
        with self._failures_in_words():
            encoding = self.tokenizer.encode(text, add_special_tokens=False)
        return list(encoding.ids), [(int(begin), int(end)) for begin, end in encoding.offsets]

    def decode(self, numbers: Sequence[int]) -> str:
        """The text of token numbers, special tokens included, for display."""
        return str(self.tokenizer.decode(list(numbers), skip_special_tokens=False))

    @contextmanager
    def _failures_in_words(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            if not is_failure(error):
                raise
            problem = f"the tokenizer {self._file or ''} fails on a text ({error})"
            raise RunError(
                f"{problem}. Give a model or a tokens.file with another tokenizer."
            ) from error

    def around(self, tokens: Sequence[int] | np.ndarray) -> list[int]:
        """[CLS] tokens [SEP]."""
        return [self.cls, *tokens, self.sep]

    def continuing(
        self, key: str = "train.whole_words", way_out: str = "set it to false"
    ) -> np.ndarray:
        """Whether each token continues the word before it, by a marker (##) or its absence (▁, Ġ).

        Without a marker, a token that does not begin with a letter or digit is a word. Raises
        RecipeError, about the key that asks, if the vocabulary does not mark words.
        """
        texts = [self.tokenizer.id_to_token(number) or "" for number in range(len(self))]
        prefix = getattr(self.tokenizer.model, "continuing_subword_prefix", None)
        if isinstance(self.tokenizer.model, models.WordLevel):
            continues = [False] * len(texts)
        elif prefix:  # asked of the model: "##" is also a token of byte-level vocabularies
            continues = [text.startswith(prefix) for text in texts]
        else:
            marked, marks = max(
                (sum(text[:1] == marks[0] for text in texts), marks) for marks in WORD_STARTS
            )
            if not marked:
                problem = "this vocabulary does not mark where words begin (by ##, ▁ or Ġ)"
                raise RecipeError([f"{key}: {problem}; {way_out}"])
            continues = [
                text[:1] not in marks and (text[:1].isalnum() or ord(text[0]) > 127)
                for text in texts
            ]
        flags = np.array(continues, bool)
        flags[self.specials] = False
        return flags

    def save(self, path: Path) -> None:
        """Writes tokenizer.json, and beside it the special tokens that it does not name."""
        write_text(path, self.tokenizer.to_str(pretty=False))
        known = self.tokenizer.get_vocab(with_added_tokens=True)
        if self._names != _special_names(self.tokenizer, known):
            names = {f"{role}_token": name for role, name in self._names.items()}
            write_json(path.with_name(ROLE_FILES[0]), names)

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """The vocabulary of a tokenizer.json; files beside it may name its special tokens."""
        try:
            text = read_text(path)
            check_tokenizer(parse_json(text))
            return cls(Tokenizer.from_str(text), path, _names_beside(path))
        except FileNotFoundError:
            raise DataError(
                "no such tokenizer", file=path, remedy="Give another tokens.file."
            ) from None
        except DataError:
            raise
        except OSError as error:
            raise DataError(
                f"cannot be read ({error.strerror})", file=path, remedy="Give another tokens.file."
            ) from None
        except BaseException as error:
            if not is_failure(error):
                raise
            raise DataError(
                f"not a tokenizer.json ({error})",
                file=path,
                remedy="Give another file in tokens.file.",
            ) from None


def is_failure(error: BaseException) -> bool:
    """Whether an error is the tokenizers library's: an Exception, or a panic, which is none."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _special_names(tokenizer: Tokenizer, known: Mapping[str, int]) -> dict[str, str]:
    """Role → token, as far as the tokenizer itself tells."""
    names = {}
    for role, usual in ROLES.items():
        if present := [name for name in usual if name in known]:
            names[role] = present[0]
    # what its post-processor puts around a text
    around = tokenizer.encode("", add_special_tokens=True).tokens
    if len(around) == 2:
        names["cls"], names["sep"] = around
    return names


def _names_beside(path: Path) -> dict[str, str]:
    """Role → token as the files beside a tokenizer.json say it."""
    names: dict[str, str] = {}
    for file in reversed(ROLE_FILES):
        beside = path.with_name(file)
        if not is_there(beside):
            continue
        try:
            content = read_json_file(beside)
            for role in ROLES:
                if token := content.get(f"{role}_token"):
                    names[role] = token["content"] if isinstance(token, dict) else token
            if not all(isinstance(name, str) for name in names.values()):
                raise TypeError("a special token is not a text")
        except (ValueError, TypeError, AttributeError, KeyError, OSError) as error:
            raise DataError(
                f"damaged ({error})",
                file=beside,
                remedy="Copy it again from its source, or delete it.",
            ) from None
    return names


def vocabulary_size(words: int) -> int:
    """The default vocabulary size for an amount of text.

    Heaps' law gives about words^0.5 to words^0.6 distinct words; small text gets a small table, so
    that most rows of the embedding are seen often enough to be learnt. The top is BERT's 30,522.
    """
    return max(1000, min(30_522, int(4 * max(words, 1) ** 0.5) // 500 * 500))


def writing_vocabulary(kind: str) -> str:
    """The subword model of a kind of task that writes texts, in place of one that cannot.

    WordPiece, the default, forgets where spaces were, and characters that it has not seen; BPE of
    bytes writes any text.
    """
    if kind == "unigram":
        problem = "it cannot write characters that it has not seen"
        raise RecipeError([f"tokens.kind = 'unigram': {problem}; set it to bpe"])
    return "bpe" if kind == "wordpiece" else kind


def train_vocabulary(
    texts: Iterable[Sequence[str]], settings: Tokens, size: int, exact: bool = False
) -> Vocabulary:
    """A vocabulary of at most `size` types, each with two occurrences or more in the text.

    `exact`: every text can be written as it was, but for capitals where they are folded.

    WordPiece and BPE are deterministic. The library's Unigram trainer does not: a run
    keeps the vocabulary it trained, but another run on the same data gets a slightly different one.
    """
    # accents are kept: in many languages they distinguish words
    normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=True,
        strip_accents=False,
        lowercase=settings.folds_case,
    )
    if settings.kind == "wordpiece":
        counts = count_words(texts, normalizer)
        known = learn(counts, size, SPECIALS, alphabet=max(1000, size // 4))
        tokenizer = Tokenizer(models.WordPiece(known, unk_token=UNK, max_input_chars_per_word=100))
        tokenizer.add_special_tokens(list(SPECIALS))
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        tokenizer.normalizer = normalizer
        return Vocabulary(tokenizer)
    common: dict[str, Any] = {
        "vocab_size": size,
        "special_tokens": list(SPECIALS),
        "show_progress": False,
    }
    trainer: Any
    if settings.kind == "bpe":
        tokenizer = Tokenizer(models.BPE(unk_token=UNK))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            min_frequency=2, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **common
        )
    else:
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(unk_token=UNK, **common)
    if not exact:
        tokenizer.normalizer = normalizer
    elif settings.folds_case:
        tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.train_from_iterator(texts, trainer)
    return Vocabulary(tokenizer)
