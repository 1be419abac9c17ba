"""RAKE, stop words and the queries made with them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasklm.corpus.words import words
from tasklm.errors import RecipeError
from tasklm.recipe.data_sections import Select
from tasklm.select.lexical.queries import make_queries
from tasklm.select.lexical.rake import key_phrases, phrase_scores
from tasklm.select.lexical.stopwords import guess_languages, known_languages, stop_words

# The abstract that Rose et al. (2010) work through, and a stop list that yields their candidates.
ABSTRACT = (
    "Compatibility of systems of linear constraints over the set "
    "of natural numbers. Criteria of compatibility of a system of "
    "linear Diophantine equations, strict inequations, "
    "and nonstrict inequations are considered. Upper bounds for components of "
    "a minimal set of solutions and algorithms of construction of "
    "minimal generating sets of solutions for all types of systems "
    "are given. These criteria and the corresponding algorithms "
    "for constructing a minimal supporting set of solutions can be "
    "used in solving all the considered types of systems and systems of mixed types."
)
STOP_TEXT = (
    "of over the a and are for all these can be in "
    "considered given used types mixed solutions construction"
)
STOP = frozenset(STOP_TEXT.split())

SAMPLES = {
    "en": (
        "The model was trained on the data that we have, "
        "and it is better than the one which was there before."
    ),
    "de": (
        "Das Modell wurde mit den Daten trainiert, "
        "die wir haben, und es ist besser als das, was vorher da war."
    ),
    "fr": (
        "Le modèle a été entraîné avec les données que nous "
        "avons et il est meilleur que celui qui était là avant."
    ),
    "es": (
        "El modelo fue entrenado con los datos que tenemos y "
        "es mejor que el que había antes en la casa de mi padre."
    ),
    "it": (
        "Il modello è stato addestrato con i dati che abbiamo "
        "ed è migliore di quello che era qui prima della guerra."
    ),
    "pt": (
        "O modelo foi treinado com os dados que nós temos e é "
        "melhor do que aquele que estava na casa dos pais dele."
    ),
    "nl": (
        "Het model is getraind met de gegevens die wij "
        "hebben en het is beter dan wat er voor die tijd was."
    ),
    "ru": (
        "Модель была обучена на данных, которые у нас есть, и она лучше, чем то, что было до этого."
    ),
    "pl": (
        "Model był uczony na danych, które mamy, "
        "i jest lepszy niż to, co było tu przed nim, ale nie jest to wszystko."
    ),
    "sv": (
        "Modellen har tränats med de data som vi har och "
        "den är bättre än det som fanns här från början."
    ),
    "tr": (
        "Bu model çok iyi bir sonuç verdi ama daha önce "
        "olan bir şey için ne kadar gerekli olduğu belli değil."
    ),
    "ar": (
        "هذا هو النموذج الذي تم تدريبه على البيانات "
        "التي كانت في الملف وهو أفضل من كل ما كان قبل ذلك"
    ),
    "hi": "यह मॉडल उन आंकड़ों पर बनाया गया है जो हमारे पास हैं और यह पहले से बहुत अच्छा है",
    "yo": "Ó sọ fún wọn pé kí wọ́n lọ sí ilé ìwé náà láti rí àwọn ọmọ tí wọ́n wà níbẹ̀",
    "sw": (
        "Kwa sasa ni muhimu sana kwa watu wote wa nchi "
        "hii kuwa na maji safi katika nyumba zao kila siku."
    ),
    "id": (
        "Model ini dilatih dengan data yang ada dan hasilnya "
        "lebih baik dari pada yang sudah pernah dibuat oleh mereka."
    ),
}


def test_rake_on_the_example_of_its_paper():
    # minimal: degree 2 + 3 + 3 over 3 phrases = 8/3; set: (1 + 2 + 3)/3 = 2; linear: (2 + 3)/2;
    # words of one phrase: its length.
    scores = phrase_scores(ABSTRACT, STOP)
    expected = {
        "minimal generating sets": 8 / 3 + 6,
        "linear diophantine equations": 8.5,
        "minimal supporting set": 8 / 3 + 5,
        "minimal set": 8 / 3 + 2,
        "linear constraints": 4.5,
        "natural numbers": 4,
        "strict inequations": 4,
        "nonstrict inequations": 4,
        "upper bounds": 4,
        "corresponding algorithms": 3.5,
        "set": 2,
        "algorithms": 1.5,
        "compatibility": 1,
        "systems": 1,
        "criteria": 1,
        "system": 1,
        "components": 1,
        "constructing": 1,
        "solving": 1,
    }
    assert scores == pytest.approx(expected)
    assert key_phrases(ABSTRACT, STOP, 9) == list(expected)[:9]
    assert key_phrases(ABSTRACT, STOP, 3) == list(expected)[:3]


def test_rake_phrases_end_at_punctuation_but_not_inside_words():
    assert list(
        phrase_scores(
            "state-of-the-art models; don't stop\nhere (at all)\n\nnext", frozenset(["at", "all"])
        )
    ) == [
        "state of the art models",
        "don t stop here",
        "next",
    ]
    assert list(phrase_scores("快速算法。简单，的测试", frozenset("的"))) == [
        "快 速 算 法",
        "简 单",
        "测 试",
    ]
    assert list(phrase_scores("हिन्दी भाषा – अच्छी है", frozenset(["है"]))) == [
        "हिन्दी भाषा",
        "अच्छी",
    ]  # marks belong to words
    assert key_phrases("", frozenset(), 5) == [] and key_phrases("the", frozenset(["the"]), 5) == []


@given(st.text(), st.integers(1, 5))
def test_rake_takes_any_text(text, most):
    phrases = key_phrases(text, frozenset(["a"]), most)
    assert len(phrases) == len(set(phrases)) <= most
    assert set(words(" ".join(phrases))) <= set(words(text)) - {"a"}


@pytest.mark.parametrize("language", known_languages())
def test_languages_are_guessed_from_a_sentence(language):
    assert guess_languages([SAMPLES[language]])[0] == language


def test_stop_words_none_auto_and_named():
    assert stop_words("none", [SAMPLES["en"]]) == frozenset()
    english, german = stop_words("en", []), stop_words("de", [])
    assert "the" in english and "über" in german and "the" not in german
    assert stop_words(" EN, de", []) == english | german
    assert stop_words("auto", [SAMPLES["en"]] * 50) == english
    assert stop_words("auto", [SAMPLES["en"], SAMPLES["de"]] * 50) == english | german
    assert stop_words("auto", ["xyzzy plugh " * 50]) == stop_words("auto", []) == frozenset()


def test_bundled_lists_are_of_use():
    assert len(known_languages()) >= 12
    for language in known_languages():
        assert 50 <= len(stop_words(language, [])) <= 200


def test_an_unknown_language_names_those_there_are():
    with pytest.raises(
        RecipeError, match=r"no stop list for 'xx'.*choose none, auto, or from ar, de, en"
    ):
        stop_words("en,xx", [])


def test_queries_of_whole_texts_keep_order_repetition_and_stop_words():
    texts = ["The cat and the Hat", ""]
    assert make_queries(texts, Select()) == [["the", "cat", "and", "the", "hat"], []]
    assert make_queries(texts, Select(stop_words="en")) == [["cat", "hat"], []]


def test_queries_of_key_phrases():
    text = SAMPLES["en"] + " " + ABSTRACT
    assert make_queries([text], Select(queries="rake", phrases=2)) == [
        ["minimal", "generating", "sets", "linear", "diophantine", "equations"]
    ]
    # stop_words = none: the guessed list only ends phrases
    assert "the" not in make_queries([text], Select(queries="rake"))[0]


def test_queries_of_a_language_without_a_list_use_its_common_words():
    texts = [f"zu{n} mi ka{n} ta{n} mi lo{n} po{n} ki{n}." for n in range(30)]
    assert make_queries(texts, Select(queries="rake", phrases=1))[4] == ["lo4", "po4", "ki4"]
