from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.conftest import sentences, write_jsonl
from tests.encoders.samples import stir

from tasklm.encoders.base import Shape
from tasklm.encoders.bert import Bert
from tasklm.errors import DataError
from tasklm.models.task_model import (
    ModelDescription,
    TaskModel,
    cost_of,
    load_model,
    save_models,
    task_outputs,
)
from tasklm.pipeline.starter import starting_recipe
from tasklm.recipe.data_sections import Kind
from tasklm.recipe.toml import load
from tasklm.tasks.base import TASKS
from tasklm.tasks.classify import Classify
from tasklm.tasks.examples import Example, Splits
from tasklm.tasks.heads.layers import TokenHead
from tasklm.tasks.marks import mark_words
from tasklm.tokens.example_streams import ExampleStream
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.train.stage1 import task_flops

TEXTS = (
    "the << cat >> likes the [[ red ball ]]",
    "[[ cold water ]] and the << cat >>",
    "the cat has << a dog >>",
    "<< >> [[ ]] the cat likes the red ball and the cat likes cold water",
)
MARKS = ("<<", "[[")


def examples(texts: tuple[str, ...] = TEXTS) -> list[Example]:
    return [
        Example((text,), "ab"[number % 2], "train.csv", number + 2)
        for number, text in enumerate(texts)
    ]


def marked() -> Classify:
    return Classify.from_examples(examples(), Kind(marks=MARKS))


def place_by_counting(text: str, mark: str, vocabulary: Vocabulary) -> int:
    """The column of a mark: the tokens of all text before it, and [CLS]."""
    return 1 + len(vocabulary.encode([text[: text.index(mark)]])[0]) if mark in text else 0


def test_the_head_reads_the_first_token_and_the_marks(vocabulary: Vocabulary) -> None:
    units = marked().encode(examples(), vocabulary, 64)
    for unit, text in zip(units, TEXTS, strict=True):
        assert unit.places == [0, *(place_by_counting(text, mark, vocabulary) for mark in MARKS)]
    assert units[2].places[2] == 0 and len({tuple(unit.places) for unit in units}) == 4


def test_a_mark_that_is_cut_off_is_not_read(vocabulary: Vocabulary) -> None:
    place = place_by_counting(TEXTS[0], "[[", vocabulary)
    task = marked()
    assert (
        task.encode(examples()[:1], vocabulary, place + 2)[0].places[2] == place
    )  # the last token before [SEP]
    assert task.encode(examples()[:1], vocabulary, place + 1)[0].places[2] == 0


def test_marks_in_the_second_text_of_a_pair(vocabulary: Vocabulary) -> None:
    pair = Example(("the cat likes", "the << cat >>"), None)
    (unit,) = marked().encode([pair], vocabulary, 64)
    assert unit.places == [
        0,
        unit.second - 1 + place_by_counting(pair.texts[1], "<<", vocabulary),
        0,
    ]
    assert unit.tokens[unit.places[1] :][:2] == vocabulary.encode(["<<"])[0][:2]


def test_outputs_are_those_of_the_states_end_to_end(vocabulary: Vocabulary) -> None:
    torch.manual_seed(0)
    task = marked()
    encoded = EncodedExamples.of(task, examples(), vocabulary, 32)
    encoder, head = Bert(Shape(len(vocabulary), 2, 16, 2, 32, 32)).eval(), task.head(16, 0.0)
    stir(encoder)
    batch = encoded.padded(np.arange(4))
    assert batch.places is not None and batch.targets is not None
    outputs = task_outputs(encoder, head, batch)
    states = encoder(batch).view(*batch.ids.shape, 16)
    by_hand = torch.stack(
        [
            torch.cat([states[row, place] for place in places])
            for row, places in enumerate(batch.places)
        ]
    )
    assert isinstance(head, TokenHead)
    wanted = head.out(torch.nn.functional.gelu(head.dense(by_hand)))
    assert outputs.shape == (4, 1, 2) and torch.allclose(outputs[:, 0], wanted, atol=1e-5)
    losses = -wanted.log_softmax(-1)[torch.arange(4), torch.tensor([0, 1, 0, 1])]
    assert (
        task.loss(outputs, batch.targets).item() == pytest.approx(losses.sum().item(), rel=1e-5)
        and task.count(batch.targets) == 4
    )


def test_packed_rows_have_the_loss_of_padded_ones(vocabulary: Vocabulary) -> None:
    torch.manual_seed(0)
    task = marked()
    encoded = EncodedExamples.of(task, examples(TEXTS * 5), vocabulary, 32)
    encoder, head = Bert(Shape(len(vocabulary), 2, 16, 2, 32, 64)).eval(), task.head(16, 0.0)
    stir(encoder)

    def epoch(packed: bool) -> tuple[float, int, float]:
        stream, loss, count = ExampleStream(encoded, 10, seed=1, one_shape=packed), 0.0, 0
        for _ in range(len(stream)):
            batch = stream.next()
            assert (
                batch.targets is not None
                and batch.places is not None
                and batch.places.shape[1] % 3 == 0
            )
            loss += task.loss(task_outputs(encoder, head, batch), batch.targets).item()
            count += task.count(batch.targets)
        return loss, count, batch.places.shape[1]

    (padded, padded_count, _), (packed, packed_count, places) = epoch(False), epoch(True)
    assert (
        packed == pytest.approx(padded, rel=1e-4)
        and packed_count == padded_count == 20
        and places > 3
    )


def test_flops_are_those_that_pytorch_counts(vocabulary: Vocabulary) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    def heads(task: Classify) -> tuple[float, float]:
        shape = Shape(len(vocabulary), 1, 16, 2, 32, 32)
        encoded = EncodedExamples.of(task, examples(), vocabulary, 32)
        batch, head = encoded.padded(np.arange(4)), task.head(16, 0.0)
        with FlopCounterMode(display=False) as counter:
            head(torch.randn(*batch.places.shape, 16, requires_grad=True)).sum().backward()  # type: ignore[union-attr]
        cost = cost_of("bert", shape)
        read = batch.places.numel()  # type: ignore[union-attr]
        rest = cost.training(batch.ids.numel(), 0, batch.ids.shape[1], wanted=read)
        return counter.get_total_flops(), task_flops(cost, head, batch) - rest

    for task in (marked(), Classify(["a", "b"])):
        counted, ours = heads(task)
        assert ours == pytest.approx(counted)


def test_a_saved_model_finds_the_marks_again(vocabulary: Vocabulary, tmp_path: Path) -> None:
    torch.manual_seed(0)
    task, shape = marked(), Shape(len(vocabulary), 1, 16, 2, 32, 32)
    model = TaskModel(Bert(shape), task.head(16, 0.0)).eval()
    save_models(
        tmp_path / "model", ModelDescription("bert", shape, task, vocabulary, 32), [model], {}
    )
    found = load_model(tmp_path / "model", torch.device("cpu"))
    loaded, there = found.model, found.task
    batch = EncodedExamples.of(there, examples(), vocabulary, 32).padded(np.arange(4))
    assert (
        TASKS.get("classify").from_dict(task.to_dict()).to_dict()
        == task.to_dict()
        == there.to_dict()
    )
    assert torch.equal(loaded(batch), model(batch)) and there.elsewhere.marks == MARKS  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("marks", "words"),
    [
        (("<<", "@@"), "no training example has the marker '@@'"),
        (("<<", "<<"), "'<<' twice"),
        (("<<", " "), "an empty marker"),
        (tuple("abcdefgh"), "8 markers"),
    ],
)
def test_marks_that_cannot_be_read(marks: tuple[str, ...], words: str) -> None:
    with pytest.raises(DataError, match=words):
        Classify.from_examples(examples(), Kind(marks=marks))


def test_check_tells_of_usual_marks_and_of_examples_without_them() -> None:
    all_marked = [one for one in examples() if "[[" in one.texts[0]]
    said = {
        finding.check: finding
        for finding in Classify(["a", "b"]).audit(Splits(all_marked, all_marked))
    }
    assert "--kind.marks '<<,[['" in said["marks"].message
    assert "marks" not in {
        finding.check for finding in Classify(["a", "b"]).audit(Splits(examples(), examples()))
    }
    (read, warning, _) = [
        finding
        for finding in marked().audit(Splits(examples(), examples()))
        if finding.check == "marks"
    ]
    assert read.level == "ok" and "reads the markers << and [[" in read.message
    assert (
        warning.level == "warning"
        and "1 of the 4 examples of train" in warning.message
        and "line 4" in warning.examples[0]
    )


def test_a_first_recipe_has_the_marks_that_texts_have(tmp_path: Path) -> None:
    rows = [
        {"text": f"the << cat >> {word} the [[ ball ]]", "label": "ab"[number % 2]}
        for number, word in enumerate(sentences(40))
    ]
    train = write_jsonl(tmp_path / "train.jsonl", rows)
    said = starting_recipe(load(None, {"data.train": str(train)}), tmp_path / "recipe.toml")
    assert any(line.startswith("kind.marks: texts contain << and [[") for line in said)
    assert load(tmp_path / "recipe.toml").kind.marks == MARKS
    plain = write_jsonl(
        tmp_path / "plain.jsonl",
        [{**row, "text": row["text"].replace("<<", "").replace("[[", "")} for row in rows],
    )
    starting_recipe(load(None, {"data.train": str(plain)}), tmp_path / "plain.toml")
    assert load(tmp_path / "plain.toml").kind.marks is None


@pytest.mark.parametrize(
    ("given", "read"), [(None, MARKS), ((), ()), (("the",), ("the",))], ids=["auto", "none", "own"]
)
def test_usual_marks_are_read_unless_others_are_named(
    given: tuple[str, ...] | None, read: tuple[str, ...]
) -> None:
    nearly_all = [
        Example((f"the << cat >> sees the [[ ball ]] {n}",), "ab"[n % 2]) for n in range(9)
    ]
    train = [*nearly_all, Example(("the cat",), "a")]
    assert Classify.from_examples(train, Kind(marks=given)).marks == read
    if given is None:  # the other two of eleven have none
        assert Classify.from_examples([*train, train[-1]], Kind()).marks == ()


def test_the_words_around_marks_are_told_by_where_they_stand() -> None:
    text = "In rats, << Aspirin >> strongly inhibits [[ COX-2 ]] ."
    assert mark_words(text, MARKS) == [
        "order=0-1",
        "in 0=aspirin",
        "last 0=aspirin",
        "in 1=cox",
        "in 1=-",
        "in 1=2",
        "in 1=cox -",
        "in 1=- 2",
        "last 1=2",
        "before=in",
        "before=rats",
        "before=,",
        "before=in rats",
        "before=rats ,",
        "before=in rats ,",
        "0-1 before=rats",
        "0-1 before=,",
        "0-1 before=rats ,",
        "after=.",
        "0-1 after=.",
        "anywhere before=,",
        "anywhere before=in",
        "anywhere before=rats",
        "anywhere after=.",
        "between=strongly",
        "between=inhibits",
        "between=strongly inhibits",
        "0-1 between=strongly",
        "0-1 between=inhibits",
        "0-1 between=strongly inhibits",
        "0-1 apart=1",
        "0-1 all between=strongly inhibits",
    ]


def test_the_order_and_the_distance_of_marks_are_told() -> None:
    near, far = "[[ a ]] of << b >>", f"[[ a ]] {'of ' * 8} << b >>"
    assert {"order=1-0", "1-0 apart=0", "1-0 all between=of"} < set(mark_words(near, MARKS))
    assert {"order=1-0", "1-0 apart=4"} < set(mark_words(far, MARKS))
    assert not any("all between" in token for token in mark_words(far, MARKS))
    assert mark_words("no marks at all", MARKS) == []
    assert {"order=0", "in 0=b"} < set(mark_words("one << b >> alone", MARKS))


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("<e1>red ball</e1> and <e2>cat</e2> there", ("<e1>", "<e2>")),
        ("[E1] red ball [/E1] and [E2] cat [/E2] there", ("[E1]", "[E2]")),
        (
            "[E1-start] red ball [E1-end] and [E2-start] cat [E2-end] there",
            ("[E1-start]", "[E2-start]"),
        ),
        ("(( red ball )) and {{ cat }} there", ("((", "{{")),
    ],
)
def test_marks_of_every_usual_form_are_closed(text: str, marks: tuple[str, ...]) -> None:
    tokens = mark_words(text, marks)
    assert {"in 0=red ball", "in 1=cat", "between=and", "after=there"} < set(tokens)
    assert "in 0=and" not in tokens and "in 1=there" not in tokens


def test_where_nothing_closes_a_mark_the_next_words_are_marked() -> None:
    tokens = mark_words("see @@ a b c d e and $$ cat", ("@@", "$$"))
    assert {"in 0=d", "between=e", "in 1=cat"} < set(tokens)
    assert "in 0=e" not in tokens


def test_words_around_marks_are_whole_in_scripts_with_combining_marks_and_single_without_spaces() -> (
    None
):
    tokens = mark_words("<< हिन्दी >> ẹ́jọ́ 北京 [[ ไทย ]]", MARKS)
    assert {"in 0=हिन्दी", "0-1 all between=ẹ́jọ́ 北 京", "in 1=ไ"} < set(tokens)
