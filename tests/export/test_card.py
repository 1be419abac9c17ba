"""The model card holds for every kind and for any names of labels."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
from markdown_it import MarkdownIt

from tasklm.evaluate.scores import Row, Scores, Spread, to_dict
from tasklm.export.exporting import export
from tasklm.storage.files import write_json
from tasklm.tasks.examples import Example
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.tokenizer import Vocabulary
from tests.export.samples import ran, saved


def test_the_code_of_a_card_for_options_asks_about_each(
    vocabulary: Vocabulary, tmp_path: Path
) -> None:
    source = saved(tmp_path / "alone", vocabulary, "choice", layers=1, options=2)
    _, folder = export(tmp_path / "alone", "onnx", tmp_path / "out")
    example = Example(
        ("a text", "question", "one option", "another"), None, options=("one option", "another")
    )
    encoded = EncodedExamples.of(source.task, [example], source.vocabulary, source.length)
    ours = source.model(encoded.padded(np.arange(1))).reshape(2)
    np.testing.assert_allclose(ran(folder)["logits"].reshape(2), ours.detach().numpy(), atol=1e-4)


def test_labels_of_any_text_leave_the_card_whole(vocabulary: Vocabulary, tmp_path: Path) -> None:
    labels = ["a`b", "``", "two\n\n# lines", "plain"]
    saved(tmp_path / "alone", vocabulary, labels=labels, layers=1)
    _, folder = export(tmp_path / "alone", "hf", tmp_path / "out")
    lines = (folder / "README.md").read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if line.startswith("Labels, in the order of the logits: ")]
    assert (
        line.endswith(": `` a`b ``, ``` `` ```, `two # lines`, `plain`.")
        and "# lines`, `plain`." not in lines
    )


def test_names_with_markdown_or_html_in_them_stay_names(
    vocabulary: Vocabulary, tmp_path: Path
) -> None:
    odd = "<img src=x onerror=alert(1)> [a](javascript:b) ![c](d) **e** `f` |g| ~~h~~ &lt; <!-- #"
    run = tmp_path / f"# {odd}".replace("/", "")
    saved(
        run / "model",
        vocabulary,
        "multilabel",
        labels=["a", "b", f"{odd}\n\n# heading\n\n```\n<script>"],
        layers=1,
    )
    data = {"train": f"{odd}.csv", "corpus": [f"{odd}.txt"]}
    (run / "recipe.toml").write_text(
        "[data]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in data.items()),
        encoding="utf-8",
    )
    (run / "manifest.json").touch()
    row = Row(odd, "ours", Spread(0.5, 0.0, [0.5]), None, selected_passages=3)
    scores = Scores("micro_f1", ["a"], [row], {"train": 3}, 1, f"It is ahead of {odd}.", 0.95)
    write_json(run / "scores.json", to_dict(scores))
    _, folder = export(run, "hf", tmp_path / "out")
    card = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)[2]
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(card)
    headings = [after.content for token, after in pairwise(tokens) if token.type == "heading_open"]
    assert (
        headings[1:] == ["How to load it", "Data", "Scores", "Limits", "Recipe"]
        and len([t for t in tokens if t.type == "fence"]) == 2
    )
    inline = [child for token in tokens for child in token.children or ()]
    assert not {"html_block", "html_inline", "link_open", "image", "s_open"} & {
        part.type for part in (*tokens, *inline)
    }
    assert "".join(child.content for child in tokens[1].children or ()) == run.name
    assert sum(token.type == "td_open" for token in tokens) == 3
