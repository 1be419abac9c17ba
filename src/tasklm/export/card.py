"""The model card: README.md with what the model is, what it was trained on, its scores, its limits
and how to load it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasklm.console.markdown import code, plain
from tasklm.evaluate.scores import Row, Scores, interval_text, metric_name, over_seeds, spread_text
from tasklm.export.model_sizes import STEPS
from tasklm.export.onnx_runtime import SWITCH
from tasklm.export.record import Exported
from tasklm.export.source import Source
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import PATH_KEYS, dump
from tasklm.storage.files import write_text
from tasklm.tasks.base import Elsewhere

LABELS_SHOWN = 50
PLACE = """def place(mark, row, *texts):
    \"""The column where a mark begins; 0, the first token's, where no text has it.\"""
    for number, text in enumerate(texts):
        at = text.find(mark)
        if at >= 0:
            tokens = enumerate(zip(row.sequence_ids, row.offsets))
            columns = (column for column, (of, (_, end)) in tokens if of == number and end > at)
            return next(columns, 0)
    return 0

""".splitlines()


def write_card(source: Source, exported: Exported, folder: Path) -> None:
    """Writes README.md; paths of the machine that trained the model are cut to file names."""
    recipe, scores = source.recipe(), source.scores()
    parts = [_front(source, exported), f"# {plain(source.name)}", _what(source, exported)]
    parts += ["## How to load it", _loading(source, exported)]
    parts += [
        "## Data",
        _data(source, recipe, scores),
        "## Scores",
        _scores(source, scores),
        _exported_scores(exported),
    ]
    parts += ["## Limits", _limits(source, exported)]
    if recipe is not None:
        parts += [
            "## Recipe",
            "Made by `tasklm run recipe.toml` with:",
            f"```toml\n{dump(without_paths(recipe)).rstrip()}\n```",
        ]
    write_text(folder / "README.md", "\n\n".join(part for part in parts if part) + "\n")


def without_paths(recipe: Recipe) -> Recipe:
    """The recipe as others may see it: files by their names alone, and nothing of the servers that
    selected text.
    """
    paths: dict[str, dict[str, Any]] = {
        section: {key: Path(getattr(getattr(recipe, section), key)).name for key in keys}
        for section, keys in PATH_KEYS.items()
    }
    paths["data"]["corpus"] = [Path(item).name for item in recipe.data.corpus]
    plain = Recipe()
    paths["select"] = {
        "url": plain.select.url,
        "master": plain.select.master,
        "spark": [],
    }  # addresses, and settings with keys in them
    return recipe.changed(hardware={"cache": ""}, **paths)


def _front(source: Source, exported: Exported) -> str:
    library = "transformers" if exported.to == "hf" else "onnx"
    lines = [
        "license:  # yours to choose: that of the training data may bind you",
        f"library_name: {library}",
    ]
    lines += [f"pipeline_tag: {_there(source).pipeline}", "tags:", "- tasklm"]
    return "\n".join(["---", *lines, "---"])


def _what(source: Source, exported: Exported) -> str:
    """What the model takes and gives."""
    shape, kind = source.shape, source.task.kind
    numbers = (
        f"{shape.layers} layers, width {shape.width}, "
        f"{shape.vocabulary:,} tokens, at most {source.length} tokens a text"
    )
    lines = [f"A small model for one task (`{kind}`), trained by tasklm {exported.tasklm}."]
    lines.append(
        f"Encoder `{source.encoder}`: {numbers}. Weights: "
        f"{exported.weights}, {exported.megabytes:.2f} MB."
    )
    labels = source.task.labels
    if labels:
        shown = ", ".join(code(label) for label in labels[:LABELS_SHOWN])
        lines.append(
            f"Labels, in the order of the logits: "
            f"{shown}{' …' if len(labels) > LABELS_SHOWN else ''}."
        )
    lines.append(_there(source).meaning)
    if exported.wide is not None:
        lines.append(_without_wide(exported))
    return "\n".join(lines)


def _without_wide(exported: Exported) -> str:
    """What the weights file leaves out of a model with a wide part, and what that costs."""
    lines = [
        (
            "These are the logits of the network alone. "
            "The trained model adds those of a linear model of words to them"
        )
    ]
    if exported.to != "hf":
        lines[0] += "; so does `tasklm predict FOLDER`, by the files in `wide/`"
    if exported.network is not None:
        cost = exported.network
        scores = f"{100 * cost['model']:.1f} with it, {100 * cost['exported']:.1f} without"
        lines.append(
            f"On {cost['examples']:,} dev examples, {plain(metric_name(cost['metric']))}: {scores}"
        )
    return ". ".join(lines) + "."


def _there(source: Source) -> Elsewhere:
    found = source.task.elsewhere
    assert found is not None  # others are not exported
    return found


def _loading(source: Source, exported: Exported) -> str:
    """Returns code that loads the model and asks it."""
    of_options = source.task.together > 1
    if exported.to == "hf":
        name = "AutoModel" + exported.loads_with[exported.loads_with.index("For") :]
        lines = [
            f"from transformers import AutoTokenizer, {name}",
            "",
            'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
        ]
        lines += [f'model = {name}.from_pretrained("FOLDER").eval()']
        lines += [
            (
                'logits = model(**tokenizer(["a text"], '
                'padding=True, truncation=True, return_tensors="pt")).logits'
            )
        ]
        if of_options:
            lines[-1] = (
                "# token numbers of shape (examples, options, "
                "length) in, logits of shape (examples, options) out"
            )
    else:
        lines = _onnx_code(source, exported)
    if source.task.pairs:
        asked = (
            'tokenizer(["one text"], ["the other"], …)'
            if exported.to == "hf"
            else 'tokenizer.encode_batch([("one text", "the other")])'
        )
        lines.append(
            f"# pairs of texts: {asked}"
            + (', place(mark, row, "one text", "the other")' if _there(source).marks else "")
        )
    code = "\n".join(["```python", *lines, "```"])
    if exported.to == "hf":
        return code
    return "\n\n".join(
        [code, *_places(source), 'Or, from a text to its answer: `tasklm predict FOLDER "a text"`.']
    )


def _onnx_code(source: Source, exported: Exported) -> list[str]:
    """Returns lines of Python from texts to logits; places of marks are found as `tasks.marks`
    finds them.
    """
    marks = list(_there(source).marks)
    lines = [
        "import os",
        "",
        f'os.environ["{SWITCH}"] = "1"  # else onnxruntime sends events to its makers',
        "",
    ]
    lines += ["import numpy as np", "import onnxruntime", "from tokenizers import Tokenizer", ""]
    lines += PLACE if marks else []
    lines += ['tokenizer = Tokenizer.from_file("FOLDER/tokenizer.json")  # cuts and pads']
    lines += ['session = onnxruntime.InferenceSession("FOLDER/model.onnx")']
    if source.task.together > 1:
        asked = '("a text", "question [SEP] one option"), ("a text", "question [SEP] another")'
        lines += [
            f"rows = tokenizer.encode_batch([{asked}])  # one row for each option of an example"
        ]
    elif marks:
        asked = " ".join(f"{mark} a text" for mark in marks)
        lines += [f'texts = [{asked!r}, "another"]', "rows = tokenizer.encode_batch(texts)"]
    else:
        lines += ['rows = tokenizer.encode_batch(["a text", "another"])']
    fields = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
    given = [
        f'"{name}": np.array([row.{fields[name]} for row in rows])'
        for name in exported.inputs
        if name in fields
    ]
    if marks:
        lines += [
            (
                f"places = [[0, *(place(mark, row, "
                f"text) for mark in {marks})] for row, text in zip(rows, texts)]"
            )
        ]
        given += ['"places": np.array(places)']
    return [*lines, f'logits = session.run(["logits"], {{{", ".join(given)}}})[0]']


def _places(source: Source) -> list[str]:
    """What the input `places` is, where the model has it."""
    marks = _there(source).marks
    if not marks:
        return []
    shape, named = f"(rows, {1 + len(marks)})", " and ".join(map(code, marks))
    what = (
        f"`places` {shape}: the columns that the head reads: 0, "
        f"which is the first token's, and those where the marks {named} begin"
    )
    return [
        (
            f"{what}, or 0 for a mark that a text does not have, "
            f"or that was cut off. With zeros alone the head does not read the marks."
        )
    ]


def _data(source: Source, recipe: Recipe | None, scores: Scores | None) -> str:
    """What the model learnt from, and what was selected."""
    if recipe is None:
        return (
            "Not known: the model was exported without its "
            "run folder. **Write here what it was trained on.**"
        )
    data = recipe.data
    counts = scores.data if scores is not None else {}
    lines = []
    for split in ("train", "dev", "test"):
        name, count = getattr(data, split), counts.get(split)
        if name or count:
            told = f"{count:,} examples" if count is not None else "examples"
            lines.append(
                f"- {split}: {told}"
                + (f" of {code(Path(name).name)}" if name else ", held out of train")
            )
    ours = scores.ours if scores is not None else None
    if data.corpus and ours is not None and ours.selected_passages:
        names = ", ".join(code(Path(item).name) for item in data.corpus)
        passages = counts.get("corpus", {}).get("passages")
        of = f" of {passages:,}" if passages else ""
        told = (
            f"{ours.selected_passages:,}{of} passages of {names} ({ours.selected_tokens:,} tokens)"
        )
        lines.append(f"- raw text: {told}, selected by {code(recipe.select.method)}")
    else:
        lines.append("- raw text: none but that of the training examples")
    start = (
        f"weights of {code(Path(recipe.train.start).name)}"
        if recipe.train.start
        else "random weights"
    )
    return "\n".join(
        [*lines, f"- trained from {start}, with the objective {code(recipe.train.objective)}"]
    )


def _scores(source: Source, scores: Scores | None) -> str:
    """The table of the run, or what the model knows of itself."""
    if scores is None:
        chosen_by = (
            f"{plain(metric_name(source.metric))} on dev, "
            f"which chose the model: {100 * source.dev_score:.1f}"
        )
        return f"{chosen_by}. Test scores stand in the run folder."
    title = (
        f"{metric_name(scores.metric)} × 100, {over_seeds(scores)}, "
        f"[{scores.confidence:.0%} interval on test; {interval_text(scores)}]:"
    )
    rows = ["| model | dev | test |", "|---|---|---|", *(_row(row) for row in scores.rows)]
    best = (
        f"The exported weights are those of the seed that "
        f"was best on dev ({100 * source.dev_score:.1f})."
    )
    return "\n\n".join([title, "\n".join(rows), plain(scores.verdict), best])


def _row(row: Row) -> str:
    name = plain(row.name)
    return (
        f"| {f'**{name}**' if row.kind == 'ours' else name} "
        f"| {spread_text(row.dev)} | {spread_text(row.test)} |"
    )


def _exported_scores(exported: Exported) -> str:
    """What the export changed."""
    if exported.max_difference is None:
        return ""
    lines = [
        f"Logits of random rows differ from PyTorch's by at most {exported.max_difference:.1e}."
    ]
    if exported.dev is not None:
        dev = exported.dev
        both = f"{100 * dev['model']:.2f} in fp32, {100 * dev['exported']:.2f} with these weights"
        told = f"{both}, a loss of {100 * dev['loss']:.2f}"
        lines.append(
            f"{metric_name(dev['metric'])} × 100 on the {dev['examples']:,} dev examples: {told}."
        )
    elif exported.weights != "fp32":
        lines.append(
            "What weights of 8 bits cost in score was **not "
            "measured**: the model was exported without its run folder."
        )
    return " ".join(lines)


def _limits(source: Source, exported: Exported) -> str:
    lines = [
        "- It was trained for this task alone and knows no other.",
        f"- It reads {source.length} tokens; the rest of a longer text is cut off.",
        (
            "- Scores hold for texts like those it was tested on. "
            "Of other sources, times or languages nothing is known."
        ),
        "- What is wrong or unfair in the labels is learnt as well.",
    ]
    if "MatMul" in STEPS[exported.weights]:
        lines.append(
            "- Numbers are rounded by the range that they have in a "
            "batch: logits depend a little on the rows beside them."
        )
    return "\n".join(lines)
