"""What is kept of a fit gives the features that counting everything again gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.updating.small import rows

from tasklm.storage.checksums import seal
from tasklm.storage.files import ARTEFACT
from tasklm.tasks.baselines import featuriser
from tasklm.tasks.baselines.counted import NOTHING, Counted
from tasklm.tasks.baselines.featuriser import Featuriser
from tasklm.tasks.examples import Example

VIEWS = {
    "single": ("words", "letters", "marks"),
    "pairs": ("alike", "shared", "words", "marks"),
}


def examples(kind: str, count: int, seed: int) -> list[Example]:
    texts = [f"a << {row['text']} >> the ünder" for row in rows("sport food", 2 * count, seed)]
    if kind == "single":
        return [Example((text,), "x") for text in texts[:count]]
    return [Example(pair, "x") for pair in zip(texts[::2], texts[1::2], strict=True)]


def kept_in(folder: Path, train: list[Example]) -> Path:
    fitted, _ = Featuriser.fit_parts(train, ("<<",))
    fitted.counted.save(folder)
    seal(folder / ARTEFACT, {}, sorted(folder.iterdir()))
    return folder


@pytest.mark.parametrize("kind", ["single", "pairs"])
def test_kept_counts_and_new_ones_are_those_of_counting_everything(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = examples(kind, 40, 1), examples(kind, 25, 2)
    kept = Counted.load(kept_in(tmp_path, old))
    # one example is gone, and new ones stand among the old
    train = [*old[:10], *new[:5], *old[11:], *new[5:]]
    whole, wanted = Featuriser.fit_parts(train, ("<<",), view=VIEWS[kind])
    counted: list[int] = []
    count = featuriser.count_tokens

    def counting(given, known=None):  # type: ignore[no-untyped-def]
        texts = list(given)
        counted.append(len(texts))
        return count(texts, known)

    with monkeypatch.context() as patch:
        patch.setattr(featuriser, "count_tokens", counting)
        fitted, parts = Featuriser.fit_parts(train, ("<<",), view=VIEWS[kind], earlier=kept)
    assert counted[0] == len(new) * (2 if kind == "pairs" else 1)
    assert parts.keys() == wanted.keys()
    for name, block in whole.blocks.items():
        assert fitted.blocks[name].tokens == block.tokens
        assert (fitted.blocks[name].idf == block.idf).all()
    for name, matrix in wanted.items():
        assert (parts[name] != matrix).nnz == 0
    # what is kept of this fit has everything, too
    assert (fitted.counted.keys == whole.counted.keys).all()
    assert set(fitted.counted.blocks["words"][0]) >= set(whole.counted.blocks["words"][0])


def test_counts_around_other_marks_are_not_used(tmp_path: Path) -> None:
    old = examples("single", 20, 1)
    kept = Counted.load(kept_in(tmp_path, old))
    fitted, _ = Featuriser.fit_parts(old, (">>",), earlier=kept)
    assert fitted.blocks["marks"].tokens == Featuriser.fit(old, (">>",)).blocks["marks"].tokens


@pytest.mark.parametrize("name", ["counted.json", "counted.safetensors"])
def test_damaged_counts_are_noticed(tmp_path: Path, name: str) -> None:
    path = kept_in(tmp_path, examples("single", 20, 1)) / name
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    assert Counted.load(tmp_path) is NOTHING


def test_nothing_is_kept_of_very_many_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasklm.tasks.baselines.counted.MOST_COUNTS", 10)
    assert Counted.load(kept_in(tmp_path, examples("single", 20, 1))) is NOTHING
    assert not np.array(list(tmp_path.glob("counted*"))).size
