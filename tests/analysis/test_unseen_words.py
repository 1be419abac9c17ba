"""Answers about unseen words, counted by hand, and how the report shows them."""

from __future__ import annotations

from tasklm.analysis.unseen_words import unseen_words
from tasklm.report.raw_text import raw_text
from tasklm.tasks.examples import Example

TRAIN = [Example(("The dog runs",), ["D", "N", "V"], words=("The", "dog", "runs"))]
RAW = [
    Example((text,), None) for text in ("a Zebra sleeps", "the zebra runs", "nothing", "nothing")
]


def sentence(text: str, label: list[str]) -> Example:
    return Example((text,), label, words=tuple(text.split()))


def test_words_are_counted_by_what_train_shows() -> None:
    examples = [sentence("the Zebra walks", ["D", "N", "V"]), sentence("dog eats", ["N", "V"])]
    ours = [["D", "N", "N"], ["N", "V"]]
    alone = [["D", "V", "V"], ["N", "N"]]
    changes = unseen_words(TRAIN, examples, (ours, alone), RAW)
    # Zebra: right now; walks: right before; eats: right now
    assert {name: changes[name] for name in ("answers", "right", "right_before")} == {
        "answers": 3,
        "right": 2,
        "right_before": 1,
    }
    assert (changes["gained"], changes["lost"]) == (2, 1)
    first, second = changes["cases"]
    assert first["word"] == "Zebra" and (first["gold"], first["before"]) == ("N", "V")
    assert first["count"] == 2 and first["texts"] == ["a Zebra sleeps", "the zebra runs"]
    assert second["word"] == "eats" and second["count"] == 0


def test_texts_of_one_label_and_trees_and_members_of_several_count_too() -> None:
    train = [Example(("known words",), "a")]
    examples = [Example(("known words",), "a"), Example(("a new text",), "b")]
    changes = unseen_words(train, examples, (["b", "b"], ["a", "a"]), [])
    assert changes["answers"] == 1 and changes["gained"] == 1 and changes["lost"] == 0
    assert changes["cases"][0]["word"] == "a, new, text"
    tree = sentence("new", [(0, "root")])  # type: ignore[list-item]
    arcs = unseen_words(TRAIN, [tree], ([[(0, "root")]], [[(1, "nsubj")]]), [])
    assert arcs["cases"][0]["gold"] == "0 root" and arcs["cases"][0]["before"] == "1 nsubj"
    joint = Example(("new",), ("t", ["N"]), words=("new",), task="t")
    both = unseen_words(TRAIN, [joint], ([("t", ["N"])], [("t", ["V"])]), [])
    assert both["gained"] == 1


def test_the_report_shows_the_cases() -> None:
    examples = [sentence(f"zebra{i} <b>", ["N", "V"]) for i in range(9)]
    right, wrong = [["N", "V"]] * 9, [["V", "V"]] * 9
    changes = unseen_words(TRAIN, examples, (right, wrong), RAW)
    page = raw_text(changes, "On test, with the model of seed 1.")
    assert "zebra0" in page and "9 gained, 0 lost" in page and "4 more" in page
    assert "&lt;b&gt;" in page and "in no raw text" in page
    assert raw_text(None) == "" and raw_text({**changes, "answers": 0}) == ""
