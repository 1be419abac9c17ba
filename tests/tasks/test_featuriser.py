"""Features of linear models: those of scikit-learn, sums by hand, and the
same again from a folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.preprocessing import normalize

from tasklm.errors import RunError
from tasklm.tasks.baselines import featuriser
from tasklm.tasks.baselines.featuriser import Block, Featuriser, word_grams
from tasklm.tasks.baselines.pair_words import RAMPS, shared_words
from tasklm.tasks.examples import Example

TEXTS = ["the red ball", "The red balloon, a red one!", "cold water", "the water is cold, cold"]
OTHERS = ["the cold balls", "", "nothing of it"]
PAIRS = [
    ("a red ball", "a red ball"),
    ("one cat", "two dogs"),
    ("cold water here", "water is cold"),
    ("", "music"),
]
WORDS = [
    *(
        "the",
        "The",
        "ball's",
        "e-mail",
        "3.14",
        "naïve",
        "cafe\u0301",
        "Straße",
        "ﬁne",
        "İstanbul",
        "прекрасный",
        "ἀγαθός",
    ),
    *(
        "很好的电影",
        "とても",
        "ありがとう",
        "한국어",
        "हिन्दी",
        "العربية",
        "עברית",
        "ọ̀rọ̀",
        "👍🏽",
        "a\u200bb",
        "...",
        "x",
    ),
]
SETTINGS: dict[str, dict[str, Any]] = {
    "words": {"ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"},
    "letters": {"analyzer": "char_wb", "ngram_range": (3, 5), "min_df": 2},
}


def single(texts: list[str]) -> list[Example]:
    return [Example((text,), None) for text in texts]


def pairs(texts: list[tuple[str, str]]) -> list[Example]:
    return [Example(both, None) for both in texts]


@pytest.mark.parametrize("name", ["words", "letters"])
def test_the_blocks_of_a_text_are_those_of_scikit_learn(name: str) -> None:
    expected = TfidfVectorizer(sublinear_tf=True, **SETTINGS[name]).fit(TEXTS)
    fitted = Featuriser.fit(single(TEXTS))
    assert fitted.blocks[name].tokens == expected.get_feature_names_out().tolist()
    for texts in (TEXTS, OTHERS):
        np.testing.assert_allclose(
            fitted.parts(single(texts))[name].toarray(), expected.transform(texts).toarray()
        )


def many_texts(count: int, seed: int) -> list[str]:
    """Texts of words of many languages, with spaces of many kinds."""
    draw = np.random.default_rng(seed)
    spaces = [" ", "  ", "\t", "\n", "\u00a0", "\u3000"]
    return [
        "".join(f"{draw.choice(WORDS)}{draw.choice(spaces)}" for _ in range(draw.integers(0, 60)))
        for _ in range(count)
    ]


def letters_of(texts: list[str], runs: list[str] | None = None) -> tuple[CountVectorizer, Any]:
    """scikit-learn's runs of letters and their counts: of each word once,
    times the words of texts.
    """
    words = CountVectorizer(analyzer=featuriser._between_spaces)
    letters = CountVectorizer(
        analyzer="char_wb", ngram_range=(3, 5), lowercase=False, vocabulary=runs
    )
    in_texts = words.fit_transform(texts)
    in_words = letters.fit_transform(words.get_feature_names_out())
    return letters, in_texts @ in_words


def test_counts_and_weights_are_those_of_scikit_learn_to_the_last_digit() -> None:
    train, others = many_texts(300, 1), many_texts(100, 2)
    words, (letters, letter_counts) = CountVectorizer(analyzer=word_grams), letters_of(train)
    expected = {
        "words": Block.of(
            words.fit(train).get_feature_names_out().tolist(), words.transform(train), 1, 5000
        )[0],
        "letters": Block.of(
            letters.get_feature_names_out().tolist(), letter_counts, featuriser.RARE, 5000
        )[0],
    }
    fitted = Featuriser.fit(single(train), most=5000)
    for name, block in expected.items():
        assert len(block.tokens) > 100 and fitted.blocks[name].tokens == block.tokens
        assert np.array_equal(fitted.blocks[name].idf, block.idf)
    for texts in (train, others, others[:1]):
        parts = fitted.parts(single(texts))
        for name, block in expected.items():
            known = CountVectorizer(analyzer=word_grams, vocabulary=block.tokens)
            counts = (
                known.transform(texts) if name == "words" else letters_of(texts, block.tokens)[1]
            )
            counts = counts.astype(np.float64)
            counts.data = (1 + np.log(counts.data)) * block.idf[counts.indices]
            wanted = normalize(counts)
            for part in ("data", "indices", "indptr"):
                assert np.array_equal(getattr(parts[name], part), getattr(wanted, part)), (
                    name,
                    part,
                )


def test_a_pair_has_the_words_of_both_texts_side_by_side() -> None:
    fitted = Featuriser.fit(pairs(PAIRS))
    expected = TfidfVectorizer(sublinear_tf=True, **SETTINGS["words"]).fit(
        [text for side in zip(*PAIRS, strict=True) for text in side]
    )
    sides = [expected.transform(side).toarray() for side in zip(*PAIRS, strict=True)]
    np.testing.assert_allclose(fitted.parts(pairs(PAIRS))["words"].toarray(), np.hstack(sides))


def ramps(values: list[float]) -> list[float]:
    rows = [[min(max(value * RAMPS - step, 0.0), 1.0) for step in range(RAMPS)] for value in values]
    return [number for row in rows for number in row]


def test_similarities_of_pairs_are_those_by_hand() -> None:
    """The order: cosines of words and of letters; shares of both texts' words in all, the first and
    the second, then weighed by idf; shares of word pairs and of numbers; the ratio of lengths."""
    fitted = Featuriser.fit(pairs(PAIRS))
    same, different, similar, bare = fitted.parts(pairs(PAIRS))["alike"].toarray()
    np.testing.assert_allclose(same, ramps([1.0] * 11))
    np.testing.assert_allclose(
        different, ramps([0.0] * 9 + [1.0, 1.0])
    )  # no numbers; as many words
    np.testing.assert_allclose(bare, ramps([0.0] * 9 + [1.0, 0.0]))
    once, twice = (
        np.log(9 / 2) + 1,
        np.log(9 / 3) + 1,
    )  # idf of words that one or two of the 8 texts have
    both = 2 * twice
    weighed = [both / (both + 2 * once), both / (both + once), both / (both + once)]
    by_hand = ramps([2 / 4, 2 / 3, 2 / 3, *weighed, 0.0, 1.0, 1.0])
    np.testing.assert_allclose(similar[2 * RAMPS :], by_hand)
    numbers = fitted.parts(pairs([("in 1990 or 1991", "in 1990")]))["alike"].toarray()[0]
    np.testing.assert_allclose(numbers[9 * RAMPS :], ramps([1 / 2, 2 / 4]))


def test_words_of_a_pair_are_told_by_where_they_stand() -> None:
    assert shared_words(("A cat sat", "a dog sat")) == [
        "both=a",
        "both=sat",
        "first=cat",
        "second=dog",
        "either=cat",
        "either=dog",
        "cat against dog",
    ]
    far = shared_words(("a b c d e f", "g h i j k"))
    assert not any("against" in token for token in far)  # 30 pairs say nothing


def test_few_features_are_those_of_most_examples_and_of_equal_ones_the_first_by_name() -> None:
    fitted = Featuriser.fit(single(["b a", "b c", "b a", "d"]), most=2)
    assert fitted.blocks["words"].tokens == ["a", "b"]
    assert all(len(block.tokens) <= 2 for block in fitted.blocks.values())


def test_the_features_of_an_example_do_not_depend_on_those_beside_it() -> None:
    for train in (single(TEXTS), pairs(PAIRS)):
        fitted = Featuriser.fit(train)
        whole = fitted.transform(train).toarray()
        alone = [fitted.transform([example]).toarray()[0] for example in train]
        np.testing.assert_array_equal(whole, np.stack(alone))
        assert fitted.transform([]).shape == (0, whole.shape[1])


def test_texts_without_letters_have_no_features() -> None:
    for train in (single(["", " "]), pairs([("", " "), ("", "")])):
        fitted = Featuriser.fit(train)
        assert fitted.parts(train) == {}
        assert fitted.transform(train).shape == (2, 0)


def test_scripts_without_spaces_have_words_and_runs_of_characters() -> None:
    fitted = Featuriser.fit(single(["北京大学", "北京大学在北京", "ภาษาไทย"]))
    assert word_grams("北京大") == ["北", "京", "大", "北 京", "京 大"]
    assert {"北", "京 大"} < set(fitted.blocks["words"].tokens)
    assert "北京大" in fitted.blocks["letters"].tokens


def test_of_many_long_words_those_of_some_texts_are_cut_into_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(featuriser, "MOST_LONG", 150)
    sizes = []
    count = featuriser._count_letters
    monkeypatch.setattr(
        featuriser, "_count_letters", lambda texts: sizes.append(len(texts)) or count(texts)
    )
    Featuriser.fit(single([chr(0x4E00 + number) * 50 for number in range(9)]))  # 450 characters
    Featuriser.fit(single(["北" * 50] * 9))  # one word, which comes again
    Featuriser.fit(single([f"short words, of which {number} is one" for number in range(9)]))
    assert sizes == [3, 9, 9]


@pytest.mark.parametrize(
    "texts", [("<< one >> and [[ two ]]", "[[ one ]] \ud800 << two >>"), ("a b", "b c")]
)
def test_a_saved_featuriser_gives_the_same_features(tmp_path: Path, texts: tuple[str, str]) -> None:
    for number, train in enumerate((single([*texts]), pairs([texts, texts]))):
        folder = tmp_path / str(number)
        folder.mkdir()
        fitted = Featuriser.fit(train, ("<<", "[["))
        fitted.save(folder)
        assert sorted(path.name for path in folder.iterdir()) == [
            "features.json",
            "features.safetensors",
        ]
        again = Featuriser.load(folder)
        assert (again.transform(train) != fitted.transform(train)).nnz == 0
        assert (again.marks, again.pairs) == (fitted.marks, fitted.pairs)


def test_a_featuriser_of_another_format_or_with_other_weights_is_refused(tmp_path: Path) -> None:
    Featuriser.fit(single(TEXTS)).save(tmp_path)
    about = json.loads((tmp_path / "features.json").read_text(encoding="utf-8"))
    (tmp_path / "features.json").write_text(json.dumps({**about, "format": 99}), encoding="utf-8")
    with pytest.raises(RunError, match=r"features\.json has format 99, but this version reads 1"):
        Featuriser.load(tmp_path)
    (tmp_path / "features.json").write_text(json.dumps(about), encoding="utf-8")
    save_file({"words": np.zeros(2), "letters": np.zeros(1)}, tmp_path / "features.safetensors")
    with pytest.raises(RunError, match="have different features"):
        Featuriser.load(tmp_path)
    save_file({"words": np.array([np.nan])}, tmp_path / "features.safetensors")
    with pytest.raises(RunError, match="weights that are not finite numbers"):
        Featuriser.load(tmp_path)


def test_a_block_weighs_counts_by_their_logarithm_and_rarity() -> None:
    from scipy.sparse import csr_matrix

    block = Block(["a", "b"], np.array([1.0, 2.0]))
    row = np.array([1 + np.log(3), 2.0])
    np.testing.assert_allclose(
        block.tfidf(csr_matrix([[3, 1], [0, 0]])).toarray(), [row / np.linalg.norm(row), [0, 0]]
    )


@pytest.mark.parametrize(
    "long", [10**6, 100]
)  # beyond which the runs of letters are those of some texts
@pytest.mark.parametrize("train", [single(TEXTS), pairs(PAIRS)])
def test_matrices_of_train_are_the_same_as_of_other_examples(
    train: list[Example], long: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(featuriser, "MOST_LONG", long)
    monkeypatch.setattr(featuriser, "LONG", 2)
    fitted, parts = Featuriser.fit_parts(train)
    counted = fitted.parts(train)
    assert list(parts) == list(counted)
    for name, matrix in parts.items():
        assert matrix.shape == counted[name].shape and not (matrix != counted[name]).nnz
