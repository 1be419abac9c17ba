"""Tags that a model learns in BIOES and answers in the scheme of the data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasklm.errors import RecipeError
from tasklm.recipe.data_sections import Kind
from tasklm.recipe.parsing import values_for_key
from tasklm.tasks.examples import Example
from tasklm.tasks.heads.tag_schemes import BIOES, converted, faults, from_spans, learned, spans
from tasklm.tasks.readers.word_rows import word_example
from tasklm.tasks.tag import Tag
from tasklm.tokens.tokenizer import Vocabulary

RECODED = Kind(scheme="bioes")
SENTENCES = {
    "BIO": ["B-X", "I-X", "I-X", "O", "B-X", "B-Y"],
    "IOB1": ["I-X", "I-X", "I-X", "O", "I-Y", "B-Y"],
}


def example(tags: list[str]) -> Example:
    words = ["ball", "road", "water", "the", "cat", "dog"][: len(tags)]
    return word_example(words, tags, Path("train.conll"), 1)


@st.composite
def sequences(draw: st.DrawFn) -> tuple[list[str], str]:
    """Legal tags of some spans in one of the schemes that can be recoded."""
    scheme = draw(st.sampled_from(["BIO", "IOB1"]))
    entities, place = [], 0
    for gap, size, kind in draw(
        st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.sampled_from("XYZ")))
    ):
        entities.append((kind, place + gap, place + gap + size))
        place += gap + size
    return from_spans(entities, place + draw(st.integers(0, 2)), scheme), scheme


@given(sequences())
def test_nothing_is_lost_there_and_back(case: tuple[list[str], str]) -> None:
    tags, scheme = case
    inner = learned(tags, recoded=True)
    assert not faults(inner, BIOES) and spans(inner) == spans(tags)
    assert converted(inner, scheme) == tags
    assert learned(tags, recoded=False) == tags


@pytest.mark.parametrize("scheme", list(SENTENCES))
def test_targets_are_in_bioes_and_answers_in_the_datas_scheme(
    scheme: str, vocabulary: Vocabulary
) -> None:
    tags = SENTENCES[scheme]
    train = [example(tags)]
    task = Tag.from_examples(train, RECODED)
    assert task.scheme == scheme and task.recoded
    assert set(task.labels) == set(converted(tags, BIOES)) > {"B-X", "E-X", "S-Y"}
    units = task.encode(train, vocabulary, 32)
    assert units[0].targets is not None
    inner = [task.labels[number] for number in units[0].targets]
    assert inner == converted(tags, BIOES)
    (answer,) = task.answers(train, units, [np.asarray(units[0].targets)])
    assert answer["tags"] == tags and task.label_of(answer) == tags
    kinds = [(one["type"], one["words"][0], one["words"][1] + 1) for one in answer["entities"]]
    assert kinds == spans(tags)


def test_a_saved_task_knows_what_it_learned() -> None:
    train = [example(SENTENCES["BIO"])]
    task = Tag.from_examples(train, RECODED)
    again = Tag.from_dict(task.to_dict())
    assert again.to_dict() == task.to_dict() and again.recoded
    plain = Tag.from_examples(train, Kind())
    assert not plain.recoded and "recoded" not in plain.to_dict()
    assert not Tag.from_dict(plain.to_dict()).recoded
    assert "scheme" not in values_for_key(Kind()) and "scheme" in values_for_key(RECODED)


def test_data_that_is_in_bioes_stays_as_it_is() -> None:
    task = Tag.from_examples([example(["S-X", "O", "B-X", "E-X"])], RECODED)
    assert task.scheme == BIOES and not task.recoded


def test_plain_tags_are_refused() -> None:
    with pytest.raises(RecipeError, match="plain ones"):
        Tag.from_examples([example(["NOUN", "VERB"])], RECODED)


def test_the_wide_part_learns_the_same_tags() -> None:
    train = [example(["O", "B-X", "I-X", "O", "O", "B-Y"]) for _ in range(8)]
    task = Tag.from_examples(train, RECODED)
    fitted = task.fit_wide(train, train, "entity_f1")
    assert fitted is not None
    labels = task.baselines(train, {"dev": train}, "entity_f1", fitted.wide)
    assert labels["words around + linear"]["dev"] == [one.label for one in train]
