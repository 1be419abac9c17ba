"""Text without labels in stage 2: turns, epochs, dropout, what is saved, and going on after a cut."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from tasklm.device.machine import Machine
from tasklm.models.weights import load_weights
from tasklm.recipe.model_sections import Finetune
from tasklm.run_folder import Seed
from tasklm.storage.files import read_json
from tasklm.students.base import with_lasts
from tasklm.tokens.examples import EncodedExamples
from tasklm.tracking import SILENT
from tasklm.train.context import TrainingContext
from tasklm.train.stage2 import FinetuneStage
from tasklm.train.stage_runs import BEST, Stage2Plan, run_stage2
from tasklm.train.stages import finetune_stage
from tasklm.train.unlabelled import Alternation, RawLosses, Studying, dropout_rate
from tests.conftest import sentences
from tests.students.samples import NAMES, TASKS, batch_of, model_of, student_of
from tests.train.counting import Counting
from tests.train.test_loop import MACHINE, parts  # noqa: F401  (parts is a fixture)
from tests.train.test_resumed import checkpoints, cut_off, files_of, stage1


@pytest.fixture(scope="module")
def reading(parts: TrainingContext) -> TrainingContext:
    """The inputs with 30 texts without labels."""
    examples = [parts.task.example_of(text) for text in sentences(30, seed=5)]
    encoded = EncodedExamples.of(parts.task, examples, parts.vocabulary, parts.length)
    with_lasts(encoded.units)
    raw = EncodedExamples(examples, encoded.units, parts.vocabulary, parts.length)
    return dataclasses.replace(parts, raw=raw)


def settings_of(student: str, **changes: Any) -> Finetune:
    return dataclasses.replace(Finetune(batch=8, learning_rate=3e-3, unlabelled=student), **changes)


def tune(
    folder: Path, context: TrainingContext, student: str, number: int = 1, **changes: Any
) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    settings = settings_of(student, average=0.5, **changes)
    plan = Stage2Plan(3, "accuracy", 0.0, None)
    run_stage2(folder, context, settings, plan, Seed(folder.parent, 1, number), SILENT)
    summary: dict[str, Any] = read_json(folder / "summary.json")
    return summary


def test_labelled_and_unlabelled_steps_take_turns(reading: TrainingContext) -> None:
    stage = finetune_stage(reading, settings_of("cross-view"), 1, "accuracy", None)
    works = [stage.prepare(step) for step in range(1, 13)]
    names = [list(work.targets) for work in works]
    views = ["full view", "first half view", "second half view"]
    assert names == [["task"], views] * 6
    assert len(stage.stream) == 5 and stage.steps_of(1) == 10
    assert works[0].position == {"epoch": 0, "index": 1, "raw": {"epoch": 0, "index": 0}}
    assert works[11].position == {"epoch": 1, "index": 1, "raw": {"epoch": 1, "index": 2}}
    assert works[1].weights == dict.fromkeys(views, 1.0)
    assert works[1].flops > works[0].flops
    stage.go_to(works[3].position)
    again = stage.prepare(5)
    assert torch.equal(again.batch.task.ids, works[4].batch.task.ids)  # type: ignore[attr-defined]


def test_an_epoch_counts_labelled_steps(reading: TrainingContext, tmp_path: Path) -> None:
    stage1(tmp_path / "stage1", reading)
    alone = tune(tmp_path / "alone", reading, "none")
    beside = tune(tmp_path / "beside", reading, "vat")
    assert (alone["steps"], beside["steps"]) == (15, 30)
    assert alone["epochs"] == beside["epochs"] == 3
    curve = read_json(tmp_path / "beside" / "curve.json")
    assert [point["step"] for point in curve if "dev" in point] == [10, 20, 30]


@pytest.mark.parametrize("alone", [None, 0, 3, 7])
def test_text_follows_each_labelled_batch_after_the_first_ones(alone: int | None) -> None:
    """Against turns written out one by one."""
    turns: list[bool] = []
    ends = [0]  # steps after so many labelled batches and the text that follows them
    for number in range(1, 12):
        reads_text = alone is not None and number > alone
        turns += [False, True] if reads_text else [False]
        ends.append(len(turns))
    alternation = Alternation(alone)
    assert [alternation.is_text(step) for step in range(1, len(turns) + 1)] == turns
    assert [alternation.steps(number) for number in range(12)] == ends
    labelled = [turns[:step].count(False) for step in range(len(turns) + 1)]
    assert [alternation.labelled(step) for step in range(len(turns) + 1)] == labelled


def test_text_may_be_read_in_the_later_part_alone(reading: TrainingContext, tmp_path: Path) -> None:
    """Dev is scored after each epoch as before."""
    stage1(tmp_path / "stage1", reading)
    summary = tune(tmp_path / "late", reading, "vat", unlabelled_after=0.6)
    assert (summary["steps"], summary["epochs"]) == (9 + 2 * 6, 3)
    curve = read_json(tmp_path / "late" / "curve.json")
    assert [point["step"] for point in curve if "dev" in point] == [5, 11, 21]
    late = settings_of("vat", unlabelled_after=0.6)
    stage = finetune_stage(reading, late, 1, "accuracy", None, epochs=3)
    names = ["".join(stage.prepare(step).targets) for step in range(1, 22)]
    assert names == ["task"] * 9 + ["task", "vat"] * 6


def test_some_of_train_is_scored_beside_dev(reading: TrainingContext, tmp_path: Path) -> None:
    """Of examples at even distances, and nothing else changes."""
    stage1(tmp_path / "stage1", reading)
    tune(tmp_path / "usual", reading, "cross-view")
    tune(tmp_path / "scored", reading, "cross-view", scored_examples=10)
    usual, scored = (read_json(tmp_path / name / "curve.json") for name in ("usual", "scored"))
    values = [point.pop("train score", None) for point in scored]
    assert scored == usual
    assert [value is not None for value in values] == ["dev" in point for point in usual]
    assert all(0 <= value <= 1 for value in values if value is not None)
    with_scores = settings_of("none", scored_examples=10)
    stage = finetune_stage(reading, with_scores, 1, "accuracy", None)
    assert stage.score_on_train is not None
    examples = reading.train.examples[::4]
    chosen = dataclasses.replace(reading, dev=reading.encoded(examples))
    same = finetune_stage(chosen, settings_of("none"), 1, "accuracy", None)
    assert len(examples) == 10
    assert stage.score_on_train(stage.model) == same.evaluate(stage.model).score


def test_dev_may_be_scored_after_some_epochs_only(
    reading: TrainingContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And always at the end, so that the last weights can be the best."""
    stage1(tmp_path / "stage1", reading)
    judged: list[int] = []
    judge = FinetuneStage.judge

    def watched(self: FinetuneStage, step: int) -> float:
        judged.append(step)
        return judge(self, step)

    monkeypatch.setattr(FinetuneStage, "judge", watched)
    summary = tune(tmp_path / "tuned", reading, "none", score_every=2)
    assert summary["steps"] == 15 and judged == [10, 15]


@pytest.mark.parametrize("student", NAMES)
def test_the_saved_model_has_the_tensors_of_one_without_a_student(
    reading: TrainingContext, tmp_path: Path, student: str
) -> None:
    stage1(tmp_path / "stage1", reading)
    tune(tmp_path / "alone", reading, "none")
    tune(tmp_path / "beside", reading, student)
    one, other = (load_weights(tmp_path / name / BEST) for name in ("alone", "beside"))
    assert {name: tensor.shape for name, tensor in one.items()} == {
        name: tensor.shape for name, tensor in other.items()
    }
    assert any(not torch.equal(one[name], other[name]) for name in one)


def test_without_text_or_without_a_student_nothing_changes(
    parts: TrainingContext,
    reading: TrainingContext,
    tmp_path: Path,
) -> None:
    stage1(tmp_path / "stage1", parts)
    tune(tmp_path / "usual", parts, "none")
    tune(tmp_path / "unread", reading, "none")
    tune(tmp_path / "no-text", parts, "cross-view")
    names = (BEST, "curve.json")
    usual = files_of(tmp_path / "usual", names)
    assert files_of(tmp_path / "unread", names) == usual
    assert files_of(tmp_path / "no-text", names) == usual


@pytest.mark.parametrize("student", NAMES)
def test_a_fine_tuning_that_was_cut_off_ends_the_same(
    reading: TrainingContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, student: str
) -> None:
    stage1(tmp_path / "stage1", reading)
    tune(tmp_path / "straight", reading, student)
    for step in (8, 17, 24):  # before either sort of step
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            cut_off(patch, FinetuneStage, step)
            tune(tmp_path / "cut", reading, student)
        assert checkpoints(tmp_path / "cut")
    tune(tmp_path / "cut", reading, student)
    names = (BEST, "curve.json")
    assert files_of(tmp_path / "cut", names) == files_of(tmp_path / "straight", names)


def test_dropout_has_its_own_rate_on_raw_text(reading: TrainingContext) -> None:
    rates: list[list[tuple[float, bool]]] = []
    stage = finetune_stage(reading, settings_of("cross-view"), 1, "accuracy", None)
    assert stage.raw is not None
    studying = stage.raw.losses.module

    class Looking(type(studying.student)):  # type: ignore[misc]
        def forward(self, *given: Any) -> Any:
            layers = [one for one in studying.modules() if isinstance(one, torch.nn.Dropout)]
            rates.append([(one.p, one.training) for one in layers])
            return super().forward(*given)

    studying.student.__class__ = Looking
    stage.prepare(1)
    work = stage.prepare(2)
    losses = work.compute(work.batch)
    assert set(rates[0]) == {(0.2, True)} and len(rates[0]) > 3
    usual = {one.p for one in stage.model.modules() if isinstance(one, torch.nn.Dropout)}
    assert usual == {0.1} and all(loss.requires_grad for loss in losses.values())


def test_the_primary_labels_without_dropout_and_without_gradient(
    reading: TrainingContext,
) -> None:
    stage = finetune_stage(reading, settings_of("word-dropout"), 1, "accuracy", None)
    assert stage.raw is not None
    student, seen = stage.raw.losses.module.student, []
    learn = student.forward
    student.forward = lambda *given: (seen.append(given[2]), learn(*given))[1]  # type: ignore
    work = stage.prepare(2)
    for seed in (1, 2):
        torch.manual_seed(seed)
        work.compute(work.batch)
    assert torch.equal(seen[0], seen[1]) and not seen[0].requires_grad
    stage.model.eval()
    assert torch.equal(stage.model(work.batch.text), seen[0])  # type: ignore[attr-defined]


def test_rates_come_back_after_an_error() -> None:
    layer = torch.nn.Sequential(torch.nn.Dropout(0.3))
    with pytest.raises(ZeroDivisionError), dropout_rate(layer, 0.7):
        assert layer[0].p == 0.7
        _ = 1 / 0
    assert layer[0].p == 0.3


@pytest.mark.parametrize("student", NAMES)
def test_seeds_share_compiled_passes(
    reading: TrainingContext, tmp_path: Path, student: str
) -> None:
    """A graph for labelled batches, one to label text, one to learn from it, and one to find the
    noise of VAT; and the same weights as without compilation of an earlier seed.
    """
    stage1(tmp_path / "stage1", reading)
    machine = Counting(MACHINE.device, False, 1, compiles=True)
    torch._dynamo.reset()
    Counting.graphs.clear()
    together = dataclasses.replace(reading, machine=machine)
    for number in (1, 2):
        tune(tmp_path / f"together-{number}", together, student, number)
    assert len(Counting.graphs) == 3 + (student == "vat")
    tune(tmp_path / "alone-2", dataclasses.replace(reading, machine=machine), student, 2)
    one, other = (load_weights(tmp_path / f"{name}-2" / BEST) for name in ("together", "alone"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_other_students_are_compiled_for_themselves(reading: TrainingContext) -> None:
    stages = {
        name: finetune_stage(reading, settings_of(name), 1, "accuracy", None)
        for name in (*NAMES, "none")
    }
    for name, stage in stages.items():
        for other, another in stages.items():
            assert stage.losses.fits(another.losses) is (name == other)
    changed = finetune_stage(reading, settings_of("vat", vat_norm=2.0), 1, "accuracy", None)
    assert not stages["vat"].losses.fits(changed.losses)


@pytest.mark.parametrize("kind", ["tag", "parse"])
def test_a_student_of_words_learns(reading: TrainingContext, kind: str) -> None:
    """Auxiliary modules come close to the primary's answers on one batch."""
    task, vocabulary = TASKS[kind], reading.vocabulary
    model = model_of(task, vocabulary)
    student = student_of("cross-view", task, vocabulary, model, unlabelled_dropout=0.0)
    losses = RawLosses(Studying(model, student), 0.0)
    machine: Machine = MACHINE
    raw = student.prepare(batch_of(task, vocabulary), 1)
    optimiser = torch.optim.AdamW(student.parameters(), lr=1e-2)
    totals = []
    for _ in range(60):
        total = torch.stack(list(losses.sums(raw, machine).values())).sum()
        totals.append(float(total.detach()))
        optimiser.zero_grad()
        total.backward()
        optimiser.step()
    assert totals[-1] < 0.35 * totals[0]


@pytest.mark.parametrize("student", NAMES)
@pytest.mark.parametrize("kind", ["tag", "crf", "parse"])
def test_passes_over_words_are_single_graphs(
    reading: TrainingContext, kind: str, student: str
) -> None:
    """The same losses, compiled or not, from one graph to label, one to learn, and one to find the
    noise of VAT.
    """
    task, vocabulary = TASKS[kind], reading.vocabulary
    model = model_of(task, vocabulary)
    machine = Counting(MACHINE.device, False, 1, compiles=True)
    torch._dynamo.reset()
    Counting.graphs.clear()
    results = []
    for one in (machine, MACHINE):
        pupil = student_of(student, task, vocabulary, model, unlabelled_dropout=0.0)
        raw = pupil.prepare(batch_of(task, vocabulary), 1)
        losses = RawLosses(Studying(model, pupil), 0.0)
        torch.manual_seed(3)
        results.append(losses.sums(raw, one))
        assert all(weight.requires_grad for weight in model.parameters())
    assert len(Counting.graphs) == 2 + (student == "vat")
    for name, loss in results[0].items():
        torch.testing.assert_close(loss, results[1][name])


def test_adversarial_noise_meets_the_dropout_of_labelled_examples() -> None:
    assert Finetune(unlabelled="cross-view", dropout=0.5).dropout_on_text(0.5) == 0.2
    assert Finetune(unlabelled="vat", dropout=0.5).dropout_on_text(0.5) == 0.5
    assert Finetune(unlabelled="vat", unlabelled_dropout=0.1).dropout_on_text(0.5) == 0.1
