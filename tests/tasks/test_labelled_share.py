"""A share of the labels: nested, stable, and with every class; keys that change nothing by default."""

from __future__ import annotations

import dataclasses

from tasklm.recipe.model_sections import Finetune
from tasklm.recipe.parsing import values_for_key
from tasklm.recipe.raw_text import RawText
from tasklm.tasks.classify import Classify
from tasklm.tasks.examples import Example
from tasklm.tasks.members import joined
from tasklm.tasks.readers.labelled_share import split_by_label_share
from tasklm.tasks.several import Several
from tasklm.tasks.tag import Tag

EXAMPLES = [Example((f"text {i}",), "rare" if i == 40 else "usual", "f", i) for i in range(60)]
TASK = Classify(["rare", "usual"])


def test_smaller_shares_are_parts_of_larger_ones_and_have_every_class() -> None:
    lines = {}
    for share in (0.01, 0.1, 0.5, 1.0):
        used, hidden = split_by_label_share(TASK, EXAMPLES, share)
        assert len(used) in (max(1, round(60 * share)), max(1, round(60 * share)) + 1)
        assert len(used) + len(hidden) == 60 and all(one.label is None for one in hidden)
        assert {one.label for one in used} == {"rare", "usual"}
        assert [one.line for one in used] == sorted(one.line for one in used)
        lines[share] = {one.line for one in used}
    assert lines[0.01] <= lines[0.1] <= lines[0.5] <= lines[1.0]
    other_order, _ = split_by_label_share(TASK, EXAMPLES[::-1], 0.1)
    assert {one.line for one in other_order} == lines[0.1]


def test_a_share_of_sentences_has_every_tag() -> None:
    words = [("a", "b"), ("c", "d"), ("e", "f"), ("g", "h")]
    tags = [["X", "X"], ["X", "Y"], ["X", "Z"], ["X", "X"]]
    sentences = [
        Example((" ".join(own),), label, "f", number, own)
        for number, (own, label) in enumerate(zip(words, tags, strict=True))
    ]
    used, hidden = split_by_label_share(Tag(["X", "Y", "Z"], "plain"), sentences, 0.25)
    assert {tag for one in used for tag in one.label} == {"X", "Y", "Z"}
    assert len(used) + len(hidden) == 4 and hidden


def test_of_several_tasks_each_gives_its_share() -> None:
    both = [*joined("a", EXAMPLES[:20]), *joined("b", EXAMPLES)]
    task = Several({"a": TASK, "b": TASK}, {"a": "accuracy", "b": "accuracy"})
    used, hidden = split_by_label_share(task, both, 0.1)
    assert sum(one.task == "a" for one in used) == 2
    assert sum(one.task == "b" for one in used) in (6, 7)
    assert {one.task for one in hidden} == {"a", "b"}


def test_settings_of_raw_text_change_no_key_while_they_are_the_usual_ones() -> None:
    own = {entry.name for entry in dataclasses.fields(RawText)}
    usual = values_for_key(Finetune())
    assert not own & set(usual)
    assert own & set(values_for_key(Finetune(unlabelled="vat"))) == {"unlabelled"}
