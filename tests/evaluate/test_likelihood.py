from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.conftest import sentences
from tests.encoders.samples import stir
from tests.samples import encoded_texts
from tests.train.test_every_objective import NAMES

from tasklm.encoders.base import Shape
from tasklm.errors import RecipeError
from tasklm.evaluate import likelihood
from tasklm.evaluate.likelihood import METHODS, Scorer, log_data, windows_of
from tasklm.models.language_model import LanguageModel
from tasklm.models.task_model import new_encoder
from tasklm.objectives.base import OBJECTIVES
from tasklm.recipe.model_sections import Train
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.tokenizer import Vocabulary

LENGTH = 24
TEXTS = [
    *sentences(5, 3),
    "music",
    "",
    "the cat ☃ sees music",
]  # of several lengths, one empty, one with an unknown character


def model_of(
    vocabulary: Vocabulary, name: str, kind: str = "bert", **settings: Any
) -> LanguageModel:
    torch.manual_seed(0)
    shape = Shape(len(vocabulary) + 12, 2, 64, 2, 128, LENGTH, embedding=32)
    train = Train(objective=name, **settings)
    if name == "bilm":
        kind = "bilstm"
    encoder = new_encoder(kind, shape, vocabulary).eval()
    objective = OBJECTIVES.get(name)(kind, shape, vocabulary, train).eval()
    stir(encoder, 0.1)
    stir(objective, 0.1)
    return LanguageModel(encoder, objective, vocabulary, train, LENGTH, torch.device("cpu"))


def row_of(vocabulary: Vocabulary, numbers: list[int]) -> TokenBatch:
    ids = torch.tensor([[vocabulary.cls, *numbers, vocabulary.sep]])
    return TokenBatch(ids, torch.ones_like(ids), torch.arange(ids.shape[1])[None])


def by_hand(model: LanguageModel, numbers: list[int]) -> list[float]:
    """Returns log p of every ordinary token, one row and one token at a time."""
    objective, encoder, found = model.objective, model.encoder, []
    batch = row_of(model.vocabulary, numbers)
    for column, token in enumerate(numbers, 1):
        if token in model.vocabulary.specials:
            continue
        if model.settings.objective == "electric":
            found.append(-float(objective.energies(encoder, batch)[0, column]))
        elif model.settings.objective == "two-tower":
            found.append(_from_both_sides(model, numbers, column))
        elif model.settings.objective == "bilm":
            sides = ((numbers[: column - 1], 1, column - 1), (numbers[column:], -1, 1))
            found.append(sum(_one_side(model, *side, token) for side in sides) / 2)
        elif model.settings.objective == "mlm":
            hidden = row_of(model.vocabulary, numbers)
            hidden.ids[0, column] = model.vocabulary.mask
            found.append(
                math.log(
                    float(
                        objective.logits(encoder(hidden)[0, column], encoder.token).softmax(-1)[
                            token
                        ]
                    )
                )
            )
        else:
            tokens, rate = len(model.vocabulary), model.settings.mask_rate
            states = objective.generator.states(encoder, batch)[column]
            q = (
                objective.generator.prediction.logits(states, encoder.token)[:tokens]
                / model.settings.temperature
            ).softmax(-1)[token]
            d = 1 - float(
                torch.sigmoid(objective.judgement(encoder(batch))[0, column])
            )  # the head judges "replaced"
            noise = rate / (1 - rate) * float(q)
            odds = noise * d / (1 - d) / (1 + noise)
            found.append(math.log(odds / (1 + odds)))
    return found


def _from_both_sides(model: LanguageModel, numbers: list[int], column: int) -> float:
    """Log p of a token from texts that end before it and begin after it, each read alone."""
    ids = row_of(model.vocabulary, numbers).ids[0]
    before, after = ids[:column][None], ids[column + 1 :][None]
    positions = torch.arange(len(ids))
    right = TokenBatch(before, torch.ones_like(before), positions[None, :column], direction=1)
    left = TokenBatch(after, torch.ones_like(after), positions[None, column + 1 :], direction=-1)
    towers = model.objective.towers or (model.encoder, model.encoder)
    states = [
        tower.contextualise(model.encoder.embed(batch), batch)
        for tower, batch in zip(towers, (right, left), strict=True)
    ]
    both = torch.cat((states[0][0, -1], states[1][0, 0]))
    logits = model.objective.logits(both[None], model.encoder.token)[0]
    return float(logits.log_softmax(-1)[ids[column]])


def _one_side(
    model: LanguageModel, numbers: list[int], direction: int, column: int, token: int
) -> float:
    """Log p of a token beside a text that ends before it, or begins after it: read alone."""
    batch = replace(row_of(model.vocabulary, numbers), direction=direction)
    state = model.encoder(batch)[0, column]
    return float(model.objective.logits(state, model.encoder.token).log_softmax(-1)[token])


@pytest.mark.parametrize("kind", ["bert", "modern"])
@pytest.mark.parametrize("name", list(METHODS))
def test_scores_are_the_formula_one_token_at_a_time(
    vocabulary: Vocabulary, name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(likelihood, "TOKENS", 40)  # several passes, of different numbers of rows
    monkeypatch.setattr(likelihood, "AT_ONCE", 3)
    model = model_of(vocabulary, name, kind, mask_rate=0.2, temperature=0.9)
    found = list(Scorer(model).scored(TEXTS))
    assert len(found) == len(TEXTS)
    with torch.no_grad():
        for text, each in zip(TEXTS, found, strict=True):
            numbers = vocabulary.encode([text])[0]
            wanted = by_hand(model, numbers)
            assert each.tokens == [token for token in numbers if token not in vocabulary.specials]
            assert each.scores == pytest.approx(wanted, abs=2e-5) and each.total == pytest.approx(
                sum(wanted), abs=1e-4
            )
            assert each.left_out == len(numbers) - len(wanted)
    assert found[-1].left_out == 1  # [UNK]
    assert (found[6].total, found[6].per_token, found[6].windows) == (0.0, None, 0)
    assert found[0].per_token == pytest.approx(found[0].total / len(found[0].tokens))


def test_judgements_of_an_ideal_discriminator_give_the_probabilities_of_the_data() -> None:
    """By enumeration of what can stand in a place: the original, or a sample, which may be the
    original again.
    """
    p, q, rate = torch.tensor([0.7, 0.2, 0.09, 0.01]), torch.tensor([0.1, 0.6, 0.25, 0.05]), 0.3
    data, replaced = torch.zeros(4), torch.zeros(4)
    for original in range(4):
        data[original] += (1 - rate) * p[original]
        for sample in range(4):
            (data if sample == original else replaced)[sample] += rate * p[original] * q[sample]
    torch.testing.assert_close(log_data((replaced / data).log(), q.log(), rate).exp(), p)


def test_windows_are_few_and_nearly_equal() -> None:
    assert windows_of([], 5) == [] and windows_of([1, 2, 3, 4, 5], 5) == [[1, 2, 3, 4, 5]]
    assert windows_of(list(range(11)), 5) == [[0, 1, 2], [3, 4, 5, 6], [7, 8, 9, 10]]


@pytest.mark.parametrize("name", list(METHODS))
def test_a_long_text_is_the_sum_of_its_windows(vocabulary: Vocabulary, name: str) -> None:
    model = model_of(vocabulary, name)
    text = " ".join(sentences(4, 8))
    numbers = vocabulary.encode([text])[0]
    (found,) = Scorer(model).scored([text])
    parts = windows_of(numbers, LENGTH - 2)
    assert found.windows == len(parts) > 1 and found.tokens == numbers
    with torch.no_grad():
        assert found.total == pytest.approx(
            sum(sum(by_hand(model, part)) for part in parts), abs=1e-3
        )


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(METHODS)))
def test_objectives_without_probabilities_are_refused(vocabulary: Vocabulary, name: str) -> None:
    with pytest.raises(
        RecipeError,
        match=f"'{name}' is not one that texts are scored with.*electric, electra-tt, mlm, bilm",
    ):
        Scorer(model_of(vocabulary, name))


def swapped(text: str, draw: random.Random) -> str:
    """The text with two different words in each other's places."""
    words = text.split()
    while True:
        first, second = draw.sample(range(len(words)), 2)
        if words[first] != words[second]:
            words[first], words[second] = words[second], words[first]
            return " ".join(words)


def train(model: LanguageModel, texts: list[str], steps: int) -> None:
    examples = encoded_texts([(text,) for text in texts], model.vocabulary, LENGTH)
    weights = [*model.encoder.parameters(), *model.objective.parameters()]
    optimiser = torch.optim.AdamW(weights, lr=2e-3)
    draw = torch.Generator().manual_seed(0)
    for step in range(steps):
        batch = examples.padded(torch.randint(len(texts), (32,), generator=draw).numpy())
        corrupted = model.objective.corrupt(batch, step)
        targets, weight = model.objective.targets(corrupted), model.objective.weights
        losses = model.objective(model.encoder, corrupted)
        optimiser.zero_grad()
        torch.stack(
            [weight[name] * loss / targets[name] for name, loss in losses.items()]
        ).sum().backward()
        optimiser.step()


@pytest.mark.parametrize("name", ["electric", "mlm", "bilm"])
def test_a_trained_model_finds_sentences_likelier_than_the_same_words_in_disorder(
    vocabulary: Vocabulary, name: str
) -> None:
    torch.manual_seed(1)
    shape, settings = Shape(len(vocabulary), 2, 64, 2, 128, LENGTH), Train(objective=name)
    kind = "bilstm" if name == "bilm" else "bert"
    encoder = new_encoder(kind, shape, vocabulary)
    objective = OBJECTIVES.get(name)(kind, shape, vocabulary, settings)
    model = LanguageModel(encoder, objective, vocabulary, settings, LENGTH, torch.device("cpu"))
    unseen, draw = sentences(60, 99), random.Random(5)
    disordered = [swapped(text, draw) for text in unseen]

    def preferred() -> float:
        both = list(Scorer(model).scored([*unseen, *disordered]))
        return (
            sum(good.total > bad.total for good, bad in zip(both[:60], both[60:], strict=True)) / 60
        )

    before = preferred()
    train(model, sentences(400, 1), 100)
    after = preferred()
    assert before < 0.7 and after > 0.75, (before, after)
