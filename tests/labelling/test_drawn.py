"""Texts are drawn from a stream in bounded memory, the same in any order."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator

from tasklm.corpus.dedupe import text_key
from tasklm.labelling.drawn import draw
from tasklm.tasks.examples import Example


def texts(count: int) -> list[Example]:
    return [Example((f"text number {number}",), None) for number in range(count)]


def test_the_same_texts_are_drawn_in_any_order() -> None:
    pile = texts(500)
    drawn = draw(pile, set(), 50)
    random.Random(1).shuffle(pile)
    again = draw(pile, set(), 50)
    assert [one.text for one in again.examples] == [one.text for one in drawn.examples]
    assert len(drawn.examples) == 50 and drawn.read == 500


def test_labelled_texts_and_copies_are_left_out_and_counted() -> None:
    pile = [*texts(20), Example(("TEXT  number 3",), None), *texts(20)]
    drawn = draw(pile, {text_key("text number 7"), text_key("other")}, 50)
    assert (drawn.read, drawn.labelled, drawn.copies) == (41, 2, 20)
    assert len(drawn.examples) == 19
    assert "text number 7" not in {one.text for one in drawn.examples}


def test_memory_does_not_grow_with_the_pile() -> None:
    def pile(count: int) -> Iterator[Example]:
        return (Example((f"{number} " + "long " * 200,), None) for number in range(count))

    def peak(count: int) -> int:
        tracemalloc.start()
        draw(pile(count), set(), 100)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(6000) < 1.5 * peak(1000)
