"""What the peer does before training: it reads, selects and tokenises."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow
import pyarrow.json
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from tasklm.corpus.sources import find_files
from tasklm.recipe.schema import Recipe
from tasklm.tokens.tokenizer import CLS, MASK, PAD, SEP, SPECIALS, UNK

Splits = dict[str, list[tuple[str, str]]]  # texts and labels
_BLOCK = 1 << 24  # bytes: a row is shorter


def read_splits(recipe: Recipe) -> Splits:
    """The texts and labels; train is without the texts that dev and test have too."""
    files = {"train": recipe.data.train, "dev": recipe.data.dev, "test": recipe.data.test}
    splits = {}
    for name, file in files.items():
        table = _table(file)
        splits[name] = list(zip(table["text"].to_pylist(), table["label"].to_pylist(), strict=True))
    held_out = {text for name in ("dev", "test") for text, _ in splits[name]}
    splits["train"] = [pair for pair in splits["train"] if pair[0] not in held_out]
    return splits


def read_passages(recipe: Recipe) -> list[str]:
    """The texts of the corpus, long ones cut."""
    most, passages = recipe.data.passage_words, []
    for file in find_files(recipe.data.corpus):
        for text in _table(str(file))["text"].to_pylist():
            words = text.split()
            if len(words) <= most:
                passages.append(text)
            else:
                cuts = range(0, len(words), most)
                passages += [" ".join(words[cut : cut + most]) for cut in cuts]
    return passages


def _table(file: str) -> pyarrow.Table:
    options = pyarrow.json.ReadOptions(block_size=_BLOCK)
    return pyarrow.json.read_json(pyarrow.input_stream(file), read_options=options)


def select(
    passages: Sequence[str], queries: Sequence[str], recipe: Recipe, threads: int
) -> list[str]:
    """The passages that BM25 finds for the queries, best ranks first."""
    import bm25s

    settings = recipe.select
    # numba compiles for about ten seconds, which pays off where it has several threads
    backend = "numba" if threads > 1 else "numpy"
    model = bm25s.BM25(method="lucene", k1=settings.k1, b=settings.b, backend=backend)
    words = {"stopwords": [], "show_progress": False}
    model.index(bm25s.tokenize(list(passages), **words), show_progress=False)
    asked = bm25s.tokenize(list(queries), return_ids=False, **words)
    k = min(settings.k or 1, len(passages))
    found = model.retrieve(asked, k=k, n_threads=threads, show_progress=False)
    chosen = merge(np.asarray(found.documents), settings.passages or len(passages))
    return [passages[place] for place in chosen]


def merge(ranks: NDArray[np.int64], most: int) -> list[int]:
    """Each passage once, those of the best ranks of any query first; a row is a query's."""
    order = ranks.T.ravel()
    _, first = np.unique(order, return_index=True)
    places: list[int] = order[np.sort(first)][:most].tolist()
    return places


def learn_vocabulary(texts: Sequence[str], recipe: Recipe) -> PreTrainedTokenizerFast:
    """A WordPiece vocabulary of the texts."""
    words = Tokenizer(models.WordPiece(unk_token=UNK))
    words.normalizer = normalizers.BertNormalizer(lowercase=recipe.tokens.folds_case)
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=recipe.tokens.vocabulary, special_tokens=list(SPECIALS), show_progress=False
    )
    words.train_from_iterator(texts, trainer)
    marks = {"pad_token": PAD, "unk_token": UNK, "mask_token": MASK}
    return PreTrainedTokenizerFast(tokenizer_object=words, cls_token=CLS, sep_token=SEP, **marks)


def pack(
    texts: Sequence[str], tokenizer: PreTrainedTokenizerFast, recipe: Recipe
) -> NDArray[np.int32]:
    """Full rows of [CLS] text [SEP] [CLS] text …, cut as the library's examples do."""
    length, stream = recipe.tokens.rows, []
    for row in tokenizer(list(texts), add_special_tokens=False)["input_ids"]:
        stream += [tokenizer.cls_token_id, *row, tokenizer.sep_token_id]
    rows = max(1, len(stream) // length)
    stream += [tokenizer.pad_token_id] * (length - len(stream))  # of less than one row
    return np.array(stream[: rows * length], np.int32).reshape(rows, length)
