from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tasks.word_samples import CONLLU, Letters, jsonl, lines
from torch import Tensor
from torch.nn import functional

from tasklm.errors import DataError, RecipeError
from tasklm.recipe.data_sections import Data, Kind
from tasklm.tasks.base import NONE, TASKS, score
from tasklm.tasks.examples import Example, Splits
from tasklm.tasks.heads.biaffine import BiaffineHead, arc_loss
from tasklm.tasks.heads.trees import UNKNOWN
from tasklm.tasks.parse import Parse


def sentence(text: str, label: Any, line: int = 1, file: str = "train") -> Example:
    return Example((text,), label, file, line, tuple(text.split()))


TRAIN = [
    sentence("dogs chase cats", [(2, "nsubj"), (0, "root"), (2, "obj")], 1),
    sentence("the dogs sleep", [(2, "det"), (3, "nsubj"), (0, "root")], 2),
    sentence("go", [(0, "root")], 3),
]
RELATIONS = ["det", "nsubj", "obj", "root"]


def task() -> Parse:
    return Parse.from_examples(TRAIN, Kind())


def problem(path: Path) -> DataError:
    with pytest.raises(DataError) as caught:
        Parse.read(path, Data())
    assert caught.value.remedy and caught.value.file == path
    return caught.value


def test_tables_and_conllu_are_read(tmp_path: Path) -> None:
    rows = [
        {"tokens": ["dogs", "sleep"], "heads": [2, 0], "deprels": ["nsubj", "root"]},
        {"tokens": [], "heads": [], "deprels": []},
    ]
    examples, notes = Parse.read(jsonl(tmp_path / "a.jsonl", rows), Data())
    assert [(example.words, example.label, example.line) for example in examples] == [
        (("dogs", "sleep"), [(2, "nsubj"), (0, "root")], 1)
    ]
    assert notes == [
        "words: column 'tokens', heads: column 'heads', relations: column 'deprels'",
        "1 row without text left out (line 2)",
    ]
    other = jsonl(tmp_path / "b.jsonl", [{"w": ["go"], "h": [0], "r": ["root"]}])
    assert Parse.read(other, Data(text_column="w", label_column="h, r"))[0][0].label == [
        (0, "root")
    ]
    (first, second), _ = Parse.read(lines(tmp_path / "a.conllu", CONLLU), Data())
    assert first.words == ("In", "dem", "Haus", "regnet", "'s") and first.line == 4
    assert first.label == [(3, "case"), (3, "det"), (4, "obl"), (0, "root"), (4, "expl")]
    assert second.label == [(0, "root")] and second.line == 12
    assert Parse.read(tmp_path / "a.conllu", Data(), labelled=False)[0][0].label is None


def test_faults_of_files_name_file_and_line(tmp_path: Path) -> None:
    good = {"tokens": ["a"], "heads": [0], "deprels": ["root"]}
    for row, told in (
        (
            {"tokens": ["a", "b"], "heads": [0], "deprels": ["root", "x"]},
            "2 words in 'tokens' and 1 entries in 'heads'",
        ),
        (
            {"tokens": ["a"], "heads": [1.5], "deprels": ["root"]},
            "the head of word 1 is 1.5, not a number",
        ),
        ({"tokens": ["a"], "heads": [0], "deprels": [None]}, "the relation of word 1 is None"),
    ):
        error = problem(jsonl(tmp_path / "a.jsonl", [good, row]))
        assert told in error.problem and error.line == 2
    error = problem(lines(tmp_path / "a.conllu", CONLLU.replace("\t0\troot\t_\t_", "\t_\t_\t_\t_")))
    assert "the head of word 1 is '_'" in error.problem and error.line == 12


def test_a_task_comes_back_from_json() -> None:
    made = Parse.from_examples(TRAIN, Kind(punctuation=True))
    again = Parse.from_dict(json.loads(json.dumps(made.to_dict())))
    assert vars(again) == vars(made)
    assert made.labels == RELATIONS and made.usual == "root" and made.punctuation and not made.packs
    assert TASKS.get("parse") is Parse


def test_places_are_the_root_and_first_pieces() -> None:
    unit = task().encode(TRAIN[:1], Letters(), 64)[0]  # dogs, chase, cats: 2, 3 and 2 tokens
    assert len(unit.tokens) == 9 and unit.places == [0, 1, 3, 6]
    assert unit.targets is not None and unit.targets.tolist() == [
        [NONE, NONE],
        [2, 1],
        [0, 3],
        [2, 2],
    ]
    assert task().encode([Example(("dogs sleep",), None)], Letters(), 64)[0].targets is None


def test_words_beyond_the_row_hang_on_the_child_of_the_root() -> None:
    example = sentence("aa bb cc dd", [(4, "nsubj"), (1, "obj"), (2, "strange"), (0, "root")])
    (unit,) = task().encode([example], Letters(), 5)  # room for three words
    assert unit.places == [0, 1, 2, 3]
    assert unit.targets is not None and unit.targets.tolist() == [
        [NONE, NONE],
        [UNKNOWN, 1],
        [1, 2],
        [2, UNKNOWN],
    ]
    (answer,) = task().answers([example], [unit], [np.array([[2, 1], [0, 3], [2, 2]])])
    assert (
        answer["heads"] == [2, 0, 2, 2]
        and answer["relations"] == ["nsubj", "root", "obj", "root"]
        and answer["unread"] == 1
    )
    assert len(task().label_of(answer)) == 4


def plain_loss(outputs: Tensor, targets: Tensor) -> float:
    """The loss by a loop over words."""
    total = 0.0
    for row in range(len(outputs)):
        heads = [0, *(p for p in range(1, outputs.shape[1]) if int(targets[row, p, 0]) != NONE)]
        for place in range(1, outputs.shape[1]):
            head, relation = targets[row, place].tolist()
            if head < 0:
                continue
            scores = outputs[row, place, :, 0].double().numpy()
            total += np.logaddexp.reduce(scores[heads]) - scores[head]
            if relation >= 0:
                scores = outputs[row, place, head, 1:].double().numpy()
                total += np.logaddexp.reduce(scores) - scores[relation]
    return float(total)


def sample() -> tuple[Tensor, Tensor]:
    outputs = torch.randn(3, 5, 5, 4, generator=torch.Generator().manual_seed(3))
    no = [NONE, NONE]
    targets = torch.tensor(
        [
            [no, [2, 1], [0, 2], [4, 0], [2, 1]],
            [no, [0, 2], [1, 0], no, no],
            [no, [UNKNOWN, 1], [1, UNKNOWN], [0, 2], no],
        ]
    )
    return outputs, targets


def test_loss_is_that_of_a_plain_loop() -> None:
    outputs, targets = sample()
    assert float(arc_loss(outputs, targets)) == pytest.approx(
        plain_loss(outputs, targets), rel=1e-5
    )
    assert task().count(targets) == 4 + 2 + 2
    traced = torch.compile(arc_loss, fullgraph=True, dynamic=False, backend="eager")
    torch.testing.assert_close(traced(outputs, targets), arc_loss(outputs, targets))


def test_padding_changes_nothing() -> None:
    outputs, targets = sample()
    loss = arc_loss(outputs[1:2, :3, :3], targets[1:2, :3])
    padded = torch.full((2, 5, 5, 4), 1e4)
    padded[0, :3, :3] = outputs[1, :3, :3]
    padded.requires_grad_()
    found = arc_loss(
        padded, torch.cat([targets[1:2], torch.full((1, 5, 2), NONE)])
    )  # a row of padding alone, too
    torch.testing.assert_close(found, loss)
    found.backward()
    assert padded.grad is not None and padded.grad.isfinite().all()
    assert (
        not padded.grad[0, 3:].any()
        and not padded.grad[0, :, 3:].any()
        and not padded.grad[1].any()
        and not padded.grad[0, 0].any()
    )


def test_head_is_biaffine() -> None:
    torch.manual_seed(0)
    head = BiaffineHead(6, 3, 0.0)
    with torch.no_grad():
        head.arcs.normal_()
        head.relations.normal_()
    states = torch.randn(2, 4, 6)
    found = head(states)
    assert found.shape == (2, 4, 4, 4)
    one = torch.ones(1)
    for row, d, h in ((0, 1, 2), (1, 3, 0), (1, 2, 2)):
        dependent = functional.leaky_relu(head.as_dependent(states[row, d]), 0.1)
        source = functional.leaky_relu(head.as_head(states[row, h]), 0.1)
        arc = dependent[:6] @ head.arcs[:-1] @ source[:6] + head.arcs[-1] @ source[:6]
        torch.testing.assert_close(found[row, d, h, 0], arc)
        for relation in range(3):
            expected = (
                torch.cat([dependent[6:], one])
                @ head.relations[relation]
                @ torch.cat([source[6:], one])
            )
            torch.testing.assert_close(found[row, d, h, 1 + relation], expected)


def test_a_tree_is_kept_and_told() -> None:
    outputs = np.zeros((4, 4, 5))
    outputs[1, 2, 0] = outputs[2, 1, 0] = 9.0  # words 1 and 2 want one another: a cycle
    outputs[2, 0, 0], outputs[3, 2, 0], outputs[3, 0, 0] = (
        2.0,
        4.0,
        5.0,
    )  # and word 3 wants to be a second root
    outputs[1, 2, 1 + 1] = outputs[2, 0, 1 + 3] = outputs[3, 2, 1 + 2] = 1.0
    outputs[3, 0, 1 + 3] = 7.0  # of an arc that is not taken
    kept = task().keep(outputs)
    assert kept.tolist() == [[2, 1], [0, 3], [2, 2]]
    units = task().encode(TRAIN[:1], Letters(), 64)
    (answer,) = task().answers(TRAIN[:1], units, [kept])
    rows = [
        "# text = dogs chase cats",
        *(
            f"{i}\t{w}\t_\t_\t_\t_\t{h}\t{r}\t_\t_"
            for i, w, h, r in (
                (1, "dogs", 2, "nsubj"),
                (2, "chase", 0, "root"),
                (3, "cats", 2, "obj"),
            )
        ),
    ]
    assert answer == {
        "words": ["dogs", "chase", "cats"],
        "heads": [2, 0, 2],
        "relations": ["nsubj", "root", "obj"],
        "conllu": "\n".join(rows) + "\n\n",
    }
    assert task().label_of(json.loads(json.dumps(answer))) == TRAIN[0].label
    empty = Example(("",), None)
    units = task().encode([empty], Letters(), 64)
    assert task().answers([empty], units, [task().keep(np.zeros((1, 1, 5)))])[0]["heads"] == []


def test_written_conllu_is_read_again(tmp_path: Path) -> None:
    units = task().encode(TRAIN, Letters(), 64)
    kept = [unit.targets[1:] for unit in units if unit.targets is not None]
    text = "".join(answer["conllu"] for answer in task().answers(TRAIN, units, kept))
    again, _ = Parse.read(lines(tmp_path / "a.conllu", text), Data())
    assert [(example.words, example.label) for example in again] == [
        (example.words, example.label) for example in TRAIN
    ]


def test_the_head_learns_a_sentence() -> None:
    torch.manual_seed(0)
    made = task()
    units = made.encode(TRAIN[:2], Letters(), 64)
    states = torch.randn(2, 4, 16)
    targets = torch.from_numpy(
        np.stack([unit.targets for unit in units if unit.targets is not None])
    )
    head = made.head(16, 0.0)
    optimiser = torch.optim.Adam(head.parameters(), 0.02)
    for _ in range(60):
        optimiser.zero_grad()
        loss = made.loss(head(states), targets)
        loss.backward()
        optimiser.step()
    kept = [made.keep(outputs) for outputs in head(states).detach().double().numpy()]
    assert [made.label_of(answer) for answer in made.answers(TRAIN[:2], units, kept)] == [
        example.label for example in TRAIN[:2]
    ]


def test_audit() -> None:
    dev = [
        sentence("a b", [(2, "det"), (1, "obj")], 5, "dev"),
        sentence("a b", [(0, "root"), (0, "root")], 6, "dev"),
        sentence("a b", [(0, "root"), (7, "vocative")], 7, "dev"),
    ]
    findings = {finding.check: finding for finding in task().audit(Splits(TRAIN, dev))}
    assert (
        findings["relations"].level == "ok"
        and "4 relations in train: root 3, nsubj 2, obj 1, det 1" in findings["relations"].message
    )
    assert findings["unknown relations"].level == "error"
    assert findings["unknown relations"].examples == ("dev, line 7: word 2, 'b': vocative",)
    assert findings["trees"].level == "error" and "3 sentences" in findings["trees"].message
    assert findings["trees"].examples == (
        "dev, line 5: no word is the root (has the head 0); a cycle: 1 → 2 → 1",
        "dev, line 6: words 1, 2 are all roots",
        "dev, line 7: the head of word 2 is 7, but there are only 2 words",
    )
    assert {finding.level for finding in task().audit(Splits(TRAIN, TRAIN))} == {"ok"}


def test_baselines_by_hand() -> None:
    held = {"dev": [sentence("the cats bark", None), sentence("go", None)]}
    found = task().baselines(TRAIN, held, "las")
    # the word after is right for dogs, the, dogs, sleep and go, the word before for cats and go
    assert found["head is the word after"] == {
        "dev": [[(2, "nsubj"), (3, "nsubj"), (0, "root")], [(0, "root")]]
    }
    assert found["most frequent arc of the word"] == {
        "dev": [[(2, "det"), (1, "obj"), (0, "root")], [(0, "root")]]
    }
    before = [sentence("a b c", [(0, "root"), (1, "x"), (2, "x")])]
    assert Parse.from_examples(before, Kind()).baselines(before, {"dev": before}, "las")[
        "head is the word before"
    ] == {"dev": [before[0].label]}


def test_metrics() -> None:
    gold, found = [[(0, "root"), (1, "punct")]], [[(0, "root"), (0, "punct")]]
    assert score(task().metric("uas"), gold, found) == 1.0
    assert (
        score(Parse.from_examples(TRAIN, Kind(punctuation=True)).metric("las"), gold, found) == 0.5
    )
    with pytest.raises(RecipeError, match="las, uas"):
        task().metric("accuracy")
