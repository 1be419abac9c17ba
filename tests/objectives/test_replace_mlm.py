from __future__ import annotations

import torch
from torch.nn import functional

from tasklm.tokens.tokenizer import Vocabulary
from tests.objectives.test_electra import made, rows_of


def test_replace_mlm_predicts_the_original_tokens_in_the_replaced_places(
    vocabulary: Vocabulary,
) -> None:
    encoder, objective, corrupted = made(vocabulary, name="replace-mlm")
    losses, shown = objective(encoder, corrupted), objective.generator(encoder, corrupted)
    states = encoder(shown.batch).flatten(0, 1)[shown.places]
    wanted = functional.cross_entropy(
        objective.prediction.logits(states, encoder.token), shown.answers, reduction="sum"
    )
    torch.testing.assert_close(losses["lm"], wanted)
    assert objective.targets(corrupted) == {"generator": len(shown.places), "lm": len(shown.places)}
    losses["lm"].backward()
    assert all(weight.grad is None for weight in objective.generator.parameters())


def test_all_tokens_mlm_mixes_a_copy_with_its_softmax(vocabulary: Vocabulary) -> None:
    encoder, objective, _ = made(vocabulary, name="all-tokens-mlm")
    torch.manual_seed(2)
    batch = rows_of(vocabulary, 3, 20)
    corrupted = objective.corrupt(batch, 4)
    losses, shown = objective(encoder, corrupted), objective.generator(encoder, corrupted)
    with torch.no_grad():
        states = encoder(shown.batch)
        shares = objective.prediction.logits(states, encoder.token).softmax(-1)
        copy = objective.copy(states).squeeze(-1).sigmoid()
        total = 0.0
        for row in range(3):  # token by token, by the formula
            for column in range(20):
                if batch.pieces[row, column] == 0:
                    continue
                token, seen = int(batch.ids[row, column]), int(shown.batch.ids[row, column])
                likely = (1 - copy[row, column]) * shares[row, column, token] + copy[
                    row, column
                ] * (seen == token)
                total -= float(likely.log())
    torch.testing.assert_close(float(losses["lm"]), total, rtol=1e-4, atol=1e-3)
    assert objective.targets(corrupted)["lm"] == 3 * 15
