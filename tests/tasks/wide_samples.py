"""Examples of each kind for the wide part of a model."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.tasks.test_linear import VAGUE, topics

from tasklm.recipe.data_sections import Kind
from tasklm.tasks.base import TASKS, Task
from tasklm.tasks.examples import Example

MARKED, MARKS = "marked", ("<<", "[[")  # classes of two marked words


def labelled(kind: str, count: int, seed: int) -> list[Example]:
    """Examples of a kind whose words say something of their labels."""
    draw = random.Random(seed)
    rows = topics(count, seed, VAGUE)
    if kind == "classify":
        return rows
    if kind == MARKED:
        return [Example((_marked(draw, row.text.split()),), row.label) for row in rows]
    if kind == "multilabel":
        return [
            Example(row.texts, (str(row.label),) if draw.random() < 0.8 else ()) for row in rows
        ]
    if kind == "regress":
        return [Example(row.texts, float(sorted(VAGUE).index(str(row.label)))) for row in rows]
    if kind == "tag":
        sentences = [tuple(row.text.split()[: draw.randint(1, 9)]) for row in rows]
        return [
            Example(
                (" ".join(words),), ["B-x" if len(word) > 4 else "O" for word in words], words=words
            )
            for words in sentences
        ]
    if kind == "span":
        return [asking_for_a_number(draw, row.text.split()) for row in rows]
    examples = []
    for row in rows:
        words = row.text.split()
        options = [words[2], f"x{draw.randrange(9)}", f"y{draw.randrange(9)}"][
            : draw.choice((2, 3))
        ]
        right = options[0]
        draw.shuffle(options)
        texts = (row.text, "which word ?", *options)
        examples.append(Example(texts, options.index(right), options=tuple(options)))
    return examples


def _marked(draw: random.Random, words: list[str]) -> str:
    """The words of a text, two of them marked."""
    one, other = sorted(draw.sample(range(len(words)), 2))
    words[one], words[other] = f"<< {words[one]} >>", f"[[ {words[other]} ]]"
    return " ".join(words)


def asking_for_a_number(draw: random.Random, words: list[str]) -> Example:
    """A question whose answer is the number after a word that it names; sometimes there is none."""
    named = draw.sample(sorted(set(words)), 2)
    pairs = [f"{word} has {draw.randrange(10, 99)} ." for word in named]
    answer = pairs[0].split()[2]
    if draw.random() < 0.2:
        return Example((f"how many has {named[0]} ?", f"{' '.join(words)} . {pairs[1]}"), [])
    draw.shuffle(pairs)
    text = f"{' '.join(words)} . {' '.join(pairs)}"
    begin = text.index(f"{named[0]} has {answer}") + len(f"{named[0]} has ")
    return Example((f"how many has {named[0]} ?", text), [(answer, begin)])


def task_of(kind: str, train: Sequence[Example]) -> Task:
    if kind == MARKED:
        return TASKS.get("classify").from_examples(train, Kind(marks=MARKS))
    return TASKS.get(kind).from_examples(train, Kind())
