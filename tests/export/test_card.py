"""The model card holds for every kind and for any names of labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tasklm.export.exporting import export
from tasklm.tasks.examples import Example
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.tokenizer import Vocabulary
from tests.export.samples import ran, saved


def test_the_code_of_a_card_for_options_asks_about_each(vocabulary: Vocabulary, tmp_path: Path) -> None:
    source = saved(tmp_path / "alone", vocabulary, "choice", layers=1, options=2)
    _, folder = export(tmp_path / "alone", "onnx", tmp_path / "out")
    example = Example(("a text", "question", "one option", "another"), None, options=("one option", "another"))
    encoded = EncodedExamples.of(source.task, [example], source.vocabulary, source.length)
    ours = source.model(encoded.padded(np.arange(1))).reshape(2)
    np.testing.assert_allclose(ran(folder)["logits"].reshape(2), ours.detach().numpy(), atol=1e-4)


def test_labels_of_any_text_leave_the_card_whole(vocabulary: Vocabulary, tmp_path: Path) -> None:
    labels = ["a`b", "``", "two\n\n# lines", "plain"]
    saved(tmp_path / "alone", vocabulary, labels=labels, layers=1)
    _, folder = export(tmp_path / "alone", "hf", tmp_path / "out")
    lines = (folder / "README.md").read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if line.startswith("Labels, in the order of the logits: ")]
    assert line.endswith(": `` a`b ``, ``` `` ```, `two # lines`, `plain`.") and "# lines`, `plain`." not in lines
