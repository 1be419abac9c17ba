"""Text without labels for kinds that write: what the primary writes, and what decoders learn of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tasklm.errors import RecipeError
from tasklm.models.task_model import TaskModel, cost_of
from tasklm.recipe.model_sections import Finetune
from tasklm.students.base import Classroom, RawBatch, Student, student_class
from tasklm.tasks.base import NONE
from tasklm.tasks.consistency.writing import HIDDEN_SHARE, SMOOTHING, WritingConsistency
from tasklm.tasks.heads.decoders import Table, source_of, write
from tasklm.tasks.translate import Translate
from tasklm.tasks.writing import Search, candidates
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.train.unlabelled import RawLosses, Studying
from tests.students.samples import model_of, raw_examples
from tests.train.test_loop import MACHINE

DECODERS = ("transformer", "lstm")
STUDENTS = ("cross-view", "word-dropout")
SEARCH = Search(2, 1.0, 12, 0.5)


def task_of(decoder: str) -> Translate:
    return Translate(decoder, 2, SEARCH)


def room_of(
    name: str, decoder: str, vocabulary: Vocabulary, **changes: Any
) -> tuple[TaskModel, Student]:
    task = task_of(decoder)
    model = model_of(task, vocabulary)
    with torch.no_grad():
        model.encoder.token.weight.normal_(std=0.7)  # type: ignore[union-attr, operator]
    settings = replace(Finetune(unlabelled=name, unlabelled_dropout=0.0), **changes)
    room = Classroom(task.consistency(), vocabulary, settings)
    encoder: Any = model.encoder
    return model, student_class(name, room.consistency)(room, encoder)


def raw_of(student: Student, decoder: str, vocabulary: Vocabulary) -> RawBatch:
    examples = raw_examples(task_of(decoder), vocabulary)
    return student.prepare(examples.padded(range(len(examples))), 3)  # type: ignore[arg-type]


def some_texts(rows: int, vocabulary: Vocabulary) -> Tensor:
    """Texts of several lengths, one of them empty but for its end, one without an end."""
    draw = torch.Generator().manual_seed(0)
    targets = torch.randint(10, len(vocabulary), (rows, 6), generator=draw)
    for row in range(rows):
        size = min(row, 5)
        targets[row, size] = vocabulary.sep
        targets[row, size + 1 :] = NONE
    targets[-1, -1] = 17
    return targets


def smoothed(logits: Tensor, wanted: int) -> Tensor:
    logs = logits.float().log_softmax(-1)
    return -(1 - SMOOTHING) * logs[wanted] - SMOOTHING * logs.mean()


def loss_by_hand(
    model: TaskModel, parts: tuple[Any, Any], raw: RawBatch, targets: Tensor, ahead: int
) -> float:
    """One text after the other, one token after the other, each from its own prefix."""
    encoder, decoder, (module, softmax) = model.encoder, model.head, parts
    table, total = Table.of(encoder, 16), 0.0
    for row in range(len(targets)):
        size = int((raw.text.pieces[row] > 0).sum())
        parts = (raw.text.ids, raw.text.pieces, raw.text.positions)
        source = TokenBatch(*(part[row : row + 1, :size] for part in parts))
        memory, seen = source_of(encoder, source)
        text = [int(token) for token in targets[row] if token != NONE]
        losses = []
        for place in range(len(text) - ahead):
            given = torch.tensor([[int(source.ids[0, 0]), *text[:place]]])
            state = decoder.before_source(table, memory, seen, given)[0, -1]  # type: ignore[operator]
            scores = memory[0] @ module.attention(state)
            context = scores.softmax(-1) @ memory[0]
            state = torch.tanh(module.out(torch.cat([context, state])))
            losses.append(smoothed(softmax.weight @ state, text[place + ahead]))
        total += float(sum(losses)) / max(1, len(losses))
    return total


@pytest.mark.parametrize("decoder", DECODERS)
def test_losses_are_those_computed_one_by_one(decoder: str, vocabulary: Vocabulary) -> None:
    model, student = room_of("cross-view", decoder, vocabulary)
    raw = raw_of(student, decoder, vocabulary)
    targets = some_texts(len(raw), vocabulary)
    student.eval()
    with torch.no_grad():
        losses = student(model, raw, targets, None)
        assert list(losses) == ["attention view", "future view"] == list(raw.targets())
        of_student: Any = student
        modules = zip(of_student.auxiliaries, of_student.softmaxes, strict=True)
        for (name, loss), module, ahead in zip(losses.items(), modules, (0, 1), strict=True):
            expected = loss_by_hand(model, module, raw, targets, ahead)
            assert float(loss) == pytest.approx(expected, rel=1e-4), name
    assert raw.targets() == {"attention view": 6, "future view": 6}


@pytest.mark.parametrize("decoder", DECODERS)
def test_word_dropout_learns_the_text_from_a_source_without_words(
    decoder: str, vocabulary: Vocabulary
) -> None:
    model, student = room_of("word-dropout", decoder, vocabulary, word_dropout=0.5)
    raw = raw_of(student, decoder, vocabulary)
    (student_text,) = raw.others
    assert (student_text.ids == vocabulary.mask).any() and student_text.targets is None
    targets = some_texts(len(raw), vocabulary)
    with torch.no_grad():
        loss = student(model, raw, targets, None)["word-dropout"]
        logits = model(replace(student_text, targets=targets))
        rows = [
            [
                smoothed(logits[row, place], int(token))
                for place, token in enumerate(text)
                if token >= 0
            ]
            for row, text in enumerate(targets)
        ]
    expected = sum(float(sum(row)) / len(row) for row in rows)
    assert float(loss) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("decoder", DECODERS)
def test_targets_are_the_best_ended_texts_of_a_wide_beam(
    decoder: str, vocabulary: Vocabulary
) -> None:
    model, student = room_of("cross-view", decoder, vocabulary)
    raw = raw_of(student, decoder, vocabulary)
    consistency = student.consistency
    assert isinstance(consistency, WritingConsistency)
    assert consistency.search == replace(SEARCH, beam=10, stretch=0.25)
    seen: list[Tensor] = []
    losses = RawLosses(Studying(model, student), 0.0)
    original = student.forward
    student.forward = lambda model, raw, targets, noise: (  # type: ignore[method-assign]
        seen.append(targets) or original(model, raw, targets, noise)
    )
    losses.sums(raw, MACHINE)
    with torch.no_grad():
        found = write([model], consistency.search, vocabulary, raw.text)
        found[::2, :, 0, 1] = 1.0  # as if every second text had ended
        targets = consistency.targets(found, raw.holds)
    assert len(seen) == 1 and seen[0].shape == targets.shape and targets.shape[1] % 32 == 0
    for number, (row, best_ones) in enumerate(zip(targets, found[:, 0].numpy(), strict=True)):
        text = [int(token) for token in row if token != NONE]
        best = candidates(best_ones, vocabulary.sep)[0]
        written = [int(token) for token in best_ones[0, 2:] if token >= 0]
        assert len(written) >= len(best.tokens) and best.ended == (number % 2 == 0)
        assert text == (written if best.ended else [])  # without an end: nothing to learn


@pytest.mark.parametrize("decoder", DECODERS)
def test_modules_see_what_they_may_and_teach_what_is_below(
    decoder: str, vocabulary: Vocabulary
) -> None:
    model, student = room_of("cross-view", decoder, vocabulary)
    raw = raw_of(student, decoder, vocabulary)
    targets = some_texts(len(raw), vocabulary)
    later = targets.clone()
    later[-1, 3] = (later[-1, 3] + 5) % 50 + 20  # the last text has no end: all six are tokens
    head: Any = model.head
    table = Table.of(model.encoder, 16)
    memory, seen = source_of(model.encoder, raw.text)
    with torch.no_grad():
        before, after = (
            head.before_source(
                table, memory, seen, torch.cat([raw.text.ids[:, :1], one[:, :-1]], 1).clamp(0)
            )
            for one in (targets, later)
        )
        other = head.before_source(table, memory.roll(1, 1), seen, later[:, :3].clamp(0))
        same = head.before_source(table, memory, seen, later[:, :3].clamp(0))
    assert torch.equal(before[-1, :4], after[-1, :4]) and not torch.equal(
        before[-1, 4], after[-1, 4]
    )
    if decoder == "transformer":  # an LSTM begins from the mean of the source's states
        assert torch.equal(other, same)
    sum(student(model, raw, targets, None).values()).backward()
    learnt = {
        name.split(".")[0] for name, weight in head.named_parameters() if weight.grad is not None
    }
    assert learnt == (
        {"first_norm", "layers"} if decoder == "transformer" else {"norm", "lstm", "first"}
    )
    source_parts = [weight for name, weight in head.named_parameters() if "source" in name]
    assert all(weight.grad is None for weight in source_parts)
    assert all(weight.grad is not None for weight in model.encoder.parameters())
    assert all(weight.grad is not None for weight in student.parameters())


def test_a_part_of_the_attention_is_hidden_while_it_learns(vocabulary: Vocabulary) -> None:
    """Whatever the rate of dropout is, and of the first module alone."""
    model, student = room_of("cross-view", "transformer", vocabulary)
    raw = raw_of(student, "transformer", vocabulary)
    targets = some_texts(len(raw), vocabulary)
    torch.manual_seed(0)
    with torch.no_grad():
        learning = [student.train()(model, raw, targets, None) for _ in range(2)]
        answering = [student.eval()(model, raw, targets, None) for _ in range(2)]
    assert answering[0] == answering[1]
    assert learning[0]["attention view"] != learning[1]["attention view"]
    assert learning[0]["future view"] == learning[1]["future view"] == answering[0]["future view"]
    modules: Any = student.auxiliaries
    assert [module.hidden for module in modules] == [HIDDEN_SHARE, 0.0]


@pytest.mark.parametrize("name", STUDENTS)
def test_sums_over_a_batch_are_those_over_its_parts(name: str, vocabulary: Vocabulary) -> None:
    model, student = room_of(name, "transformer", vocabulary)
    raw = raw_of(student, "transformer", vocabulary)
    targets = some_texts(len(raw), vocabulary)
    student.eval()
    with torch.no_grad():
        whole = student(model, raw, targets, None)
        parts = [
            student(model, raw.part(number, 3), targets[2 * number : 2 * number + 2], None)
            for number in range(3)
        ]
    for loss_name, loss in whole.items():
        total = sum(float(part[loss_name]) for part in parts)
        assert float(loss) == pytest.approx(total, rel=1e-4)


def test_one_module_may_learn_alone_and_noise_is_refused(vocabulary: Vocabulary) -> None:
    _, student = room_of("cross-view", "transformer", vocabulary, views=("future",))
    assert raw_of(student, "transformer", vocabulary).targets() == {"future view": 6}
    with pytest.raises(RecipeError, match="its views are attention, future"):
        room_of("cross-view", "transformer", vocabulary, views=("full",))
    with pytest.raises(RecipeError, match="choose from cross-view, word-dropout"):
        room_of("vat", "transformer", vocabulary)


@pytest.mark.parametrize("name", STUDENTS)
def test_flops_count_the_search(name: str, vocabulary: Vocabulary) -> None:
    """A step costs more with a wider beam, by what the decoder takes for one more text."""
    model, student = room_of(name, "transformer", vocabulary)
    raw = raw_of(student, "transformer", vocabulary)
    cost = cost_of("bert", model.encoder.shape)  # type: ignore[arg-type]
    ten = student.flops(cost, model.head, raw)
    narrower = WritingConsistency(replace(SEARCH, beam=4))
    student.room = replace(student.room, consistency=narrower)
    four = student.flops(cost, model.head, raw)
    rows, length = raw.text.ids.shape
    one = model.head.flops_of(rows, length, length, len(vocabulary))  # type: ignore[operator]
    assert ten - four == pytest.approx(6 * one, rel=1e-6)
