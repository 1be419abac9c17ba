"""The model card: README.md with the model's data, scores and limits, and how to load it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tasklm.console.markdown import code, plain
from tasklm.evaluate.scores import Row, Scores, interval_text, metric_name, over_seeds, spread_text
from tasklm.export.card_of_several import (
    command_text,
    labels_text,
    outputs_text,
    pipelines,
    task_files,
    task_losses,
    task_scores,
)
from tasklm.export.coverage_text import coverage_text
from tasklm.export.model_sizes import STEPS
from tasklm.export.onnx_runtime import SWITCH
from tasklm.export.publishing import bill_text, published, without_paths
from tasklm.export.record import Exported
from tasklm.export.source import Source
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import dump
from tasklm.storage.files import write_text
from tasklm.tasks.base import Elsewhere
from tasklm.tasks.readers.several import named_path
from tasklm.tasks.several import members_of
from tasklm.tasks.writing import AS_GRAPHS, writes

PLACE = """def place(mark, row, *texts):
    \"""The column where a marker begins; 0, the first token's, if no text has it.\"""
    for number, text in enumerate(texts):
        at = text.find(mark)
        if at >= 0:
            tokens = enumerate(zip(row.sequence_ids, row.offsets))
            columns = (column for column, (of, (_, end)) in tokens if of == number and end > at)
            return next(columns, 0)
    return 0

""".splitlines()


def write_card(source: Source, exported: Exported, folder: Path) -> None:
    """Writes README.md; local paths are reduced to file names."""
    recipe, scores = source.recipe(), source.scores()
    parts = [_front(source, exported), f"# {plain(source.name)}", _what(source, exported)]
    parts += ["## How to load it", _loading(source, exported)]
    parts += ["## Data", _data(source, recipe, scores)]
    if source.bill is not None:
        parts += ["## What it has read", bill_text(published(source.bill))]
    parts += ["## Scores", _scores(source, scores), _exported_scores(exported)]
    if source.calibrations():
        parts += ["## Sets of labels", coverage_text(source, exported)]
    parts += ["## Limits", _limits(source, exported)]
    if recipe is not None:
        parts += [
            "## Recipe",
            "Trained by `tasklm run recipe.toml` with:",
            f"```toml\n{dump(without_paths(recipe)).rstrip()}\n```",
        ]
    write_text(folder / "README.md", "\n\n".join(part for part in parts if part) + "\n")


def _front(source: Source, exported: Exported) -> str:
    library = "transformers" if exported.to == "hf" else "onnx"
    lines = [
        "license:  # yours to choose; the licence of the training data may apply",
        f"library_name: {library}",
    ]
    if members_of(source.task):
        lines += pipelines(source)
    else:
        lines.append(f"pipeline_tag: {_there(source).pipeline}")
    lines += ["tags:", "- tasklm"]
    return "\n".join(["---", *lines, "---"])


def _what(source: Source, exported: Exported) -> str:
    """The model's inputs and outputs."""
    shape, members = source.shape, members_of(source.task)
    what = f"one task (`{source.task.kind}`)"
    if members:
        what = f"{len(members)} tasks, which share one encoder"
    layers = f"{shape.layers} layers, width {shape.width}"
    tokens = f"{shape.vocabulary:,} tokens, at most {source.length} tokens per text"
    weights = f"{exported.weights}, {exported.megabytes:.2f} MB"
    lines = [f"A small model for {what}, trained by tasklm {exported.tasklm}."]
    lines.append(f"Encoder `{source.encoder}`: {layers}, {tokens}. Weights: {weights}.")
    if source.task.labels:
        names = labels_text(source.task.labels)
        lines.append(f"Labels, in the order of the logits: {names}.")
    if members:
        lines += [outputs_text(source), ""]
    else:
        lines.append(_there(source).meaning)
    if source.others:
        others = ", ".join(map(code, source.others))
        lines.append(
            f"It was trained together with other tasks, which are left out here: {others}."
        )
    if exported.wide is not None:
        lines.append(_without_wide(exported))
    return "\n".join(lines)


def _without_wide(exported: Exported) -> str:
    """What the weights file omits of a model with a wide part, and the loss it causes."""
    adds = "The trained model adds the outputs of a linear model of words"
    if exported.to != "hf":
        adds += "; so does `tasklm predict FOLDER`, with the files in `wide/`"
    lines = ["These are the logits of the network alone", adds]
    if exported.network is not None:
        cost = exported.network
        scores = f"{100 * cost['model']:.1f} with it, {100 * cost['exported']:.1f} without"
        lines.append(
            f"On {cost['examples']:,} dev examples, {plain(metric_name(cost['metric']))}: {scores}"
        )
    without = ". ".join(lines) + "."
    if exported.network is not None:
        without += f" {task_losses(exported.network)}"
    return without.rstrip()


def _there(source: Source) -> Elsewhere:
    there = AS_GRAPHS if writes(source.task) else source.task.elsewhere
    assert there is not None  # others are not exported
    return there


def _marks(source: Source) -> tuple[str, ...]:
    """The markers that the head reads; those of several tasks are not exported together."""
    return () if members_of(source.task) else _there(source).marks


def _loading(source: Source, exported: Exported) -> str:
    """Code that loads and runs the model."""
    if exported.to == "hf":
        lines = _transformers_code(source, exported)
        pairs = '# pairs of texts: tokenizer(["one text"], ["the other"], …)'
        further = []
    elif writes(source.task):
        return 'From a text to its answer: `tasklm predict FOLDER "a text"`.'
    else:
        lines = _onnx_code(source, exported)
        pairs = '# pairs of texts: tokenizer.encode_batch([("one text", "the other")])'
        by_command = 'Or, from a text to its answer: `tasklm predict FOLDER "a text"`.'
        if members_of(source.task):
            by_command = command_text(exported)
        further = [*_places(source), by_command]
    if _marks(source):
        pairs += ', place(mark, row, "one text", "the other")'
    if source.task.pairs:
        lines.append(pairs)
    return "\n\n".join(["\n".join(["```python", *lines, "```"]), *further])


def _transformers_code(source: Source, exported: Exported) -> list[str]:
    """Lines of Python that load the model by transformers, from texts to logits."""
    name = "AutoModel" + exported.loads_with[exported.loads_with.index("For") :]
    lines = [
        f"from transformers import AutoTokenizer, {name}",
        "",
        'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
        f'model = {name}.from_pretrained("FOLDER").eval()',
    ]
    if source.task.together > 1:
        numbers = "token numbers of shape (examples, options, length) in"
        return [*lines, f"# {numbers}, logits of shape (examples, options) out"]
    rows = 'tokenizer(["a text"], padding=True, truncation=True, return_tensors="pt")'
    return [*lines, f"logits = model(**{rows}).logits"]


def _onnx_code(source: Source, exported: Exported) -> list[str]:
    """Lines of Python from texts to logits, which find markers like `tasks.marks`."""
    marks = list(_marks(source))
    lines = [
        "import os",
        "",
        f'os.environ["{SWITCH}"] = "1"  # otherwise onnxruntime sends telemetry',
        "",
    ]
    lines += ["import numpy as np", "import onnxruntime", "from tokenizers import Tokenizer", ""]
    if marks:
        lines += PLACE
    lines += ['tokenizer = Tokenizer.from_file("FOLDER/tokenizer.json")  # cuts and pads']
    lines += ['session = onnxruntime.InferenceSession("FOLDER/model.onnx")']
    if source.task.together > 1:
        options = '("a text", "question [SEP] one option"), ("a text", "question [SEP] another")'
        encoded = f"tokenizer.encode_batch([{options}])"
        lines += [f"rows = {encoded}  # one row for each option of an example"]
    elif marks:
        text = " ".join(f"{mark} a text" for mark in marks)
        lines += [f'texts = [{text!r}, "another"]', "rows = tokenizer.encode_batch(texts)"]
    else:
        lines += ['rows = tokenizer.encode_batch(["a text", "another"])']
    fields = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
    arrays = [
        f'"{name}": np.array([row.{fields[name]} for row in rows])'
        for name in exported.inputs
        if name in fields
    ]
    if marks:
        of_row = f"[0, *(place(mark, row, text) for mark in {marks})]"
        lines += [f"places = [{of_row} for row, text in zip(rows, texts)]"]
        arrays += ['"places": np.array(places)']
    given = f"{{{', '.join(arrays)}}}"
    if not members_of(source.task):
        return [*lines, f'logits = session.run(["logits"], {given})[0]']
    names = f"names = {json.dumps(exported.outputs, ensure_ascii=False)}"
    run = f"logits = dict(zip(names, session.run(names, {given})))  # by the name of the task"
    return [*lines, names, run]


def _places(source: Source) -> list[str]:
    """The description of the input `places`, if the model has it."""
    marks = _marks(source)
    if not marks:
        return []
    what = f"`places` (rows, {1 + len(marks)}): the columns that the head reads"
    names = " and ".join(map(code, marks))
    columns = f"0 for the first token, and those where the markers {names} begin"
    otherwise = "or 0 for a marker that is missing or was cut off"
    without = "With only zeros the head does not read the markers."
    return [f"{what}: {columns}, {otherwise}. {without}"]


def _data(source: Source, recipe: Recipe | None, scores: Scores | None) -> str:
    """The training data and the selected text."""
    if recipe is None:
        unknown = "Unknown: the model was exported without its run folder"
        return f"{unknown}. **Describe the training data here.**"
    counts: Mapping[str, Any] = {}
    if scores is not None:
        counts = scores.data
    lines = _task_files(source, recipe)
    tasks = len(recipe.several.tasks)
    together = f" of all {tasks} tasks" if tasks else ""
    for split in ("train", "dev", "test"):
        name, count = getattr(recipe.data, split), counts.get(split)
        if together and count:
            lines.append(f"- {split}: {count:,} examples{together}")
        elif name or count:
            lines.append(f"- {split}: {_examples(name, count)}")
    lines.append(f"- raw text: {_raw_text(recipe, scores)}")
    start = "random weights"
    if recipe.train.start:
        start = f"weights of {code(Path(recipe.train.start).name)}"
    lines.append(f"- trained from {start}, with the objective {code(recipe.train.objective)}")
    return "\n".join(lines)


def _task_files(source: Source, recipe: Recipe) -> list[str]:
    """Where the examples of one of several tasks come from, and the tasks beside it."""
    if not source.own_name:
        return task_files(source, recipe)
    entries = dict(map(named_path, recipe.several.tasks))
    path = entries.get(source.own_name)
    place = "" if path is None else f" from {code(path.name)}"
    others = ", ".join(map(code, source.others))
    return [f"- task {code(source.own_name)}{place}, trained together with {others}"]


def _examples(path: str, count: int | None) -> str:
    """The number of examples of a split, and their file."""
    number = "examples"
    if count is not None:
        number = f"{count:,} examples"
    if not path:
        return f"{number}, held out of train"
    return f"{number} from {code(Path(path).name)}"


def _raw_text(recipe: Recipe, scores: Scores | None) -> str:
    """The amount of text selected from the files of the corpus."""
    nothing = "only that of the training examples"
    if scores is None or not recipe.data.corpus:
        return nothing
    ours = scores.ours
    if ours is None or not ours.selected_passages:
        return nothing
    selected = f"{ours.selected_passages:,}"
    if passages := scores.data.get("corpus", {}).get("passages"):
        selected += f" of {passages:,}"
    names = ", ".join(code(Path(item).name) for item in recipe.data.corpus)
    text = f"{selected} passages from {names} ({ours.selected_tokens:,} tokens)"
    return f"{text}, selected by {code(recipe.select.method)}"


def _scores(source: Source, scores: Scores | None) -> str:
    """The score table of the run, or the model's own dev score."""
    if source.own_name:
        return _scores_of_one(source, scores)
    if scores is None:
        metric = plain(metric_name(source.metric))
        chosen_by = f"{metric} on dev, used to pick the model: {100 * source.dev_score:.1f}"
        return f"{chosen_by}. Test scores are in the run folder."
    interval = f"[{scores.confidence:.0%} interval on test; {interval_text(scores)}]"
    title = f"{metric_name(scores.metric)} × 100, {over_seeds(scores)}, {interval}:"
    rows = ["| model | dev | test |", "|---|---|---|", *(_row(row) for row in scores.rows)]
    seed = f"the seed that was best on dev ({100 * source.dev_score:.1f})"
    best = f"The exported weights come from {seed}."
    parts = [title, "\n".join(rows), task_scores(scores), plain(scores.verdict), best]
    return "\n\n".join(part for part in parts if part)


def _scores_of_one(source: Source, scores: Scores | None) -> str:
    """The score table of one of several tasks, which were picked together."""
    mean = f"the mean over {1 + len(source.others)} tasks on dev, {100 * source.dev_score:.1f}"
    picked = f"The model was picked by {mean}."
    if scores is None:
        return f"{picked} The scores of each task are in the run folder."
    interval = f"[{scores.confidence:.0%} interval on test; {interval_text(scores)}]"
    title = f"{metric_name(source.metric)} × 100, {over_seeds(scores)}, {interval}:"
    rows = ["| model | dev | test |", "|---|---|---|"]
    for row in scores.rows:
        own = [one for one in row.tasks if one.name == source.own_name]
        rows += [_row(replace(row, dev=one.dev, test=one.test)) for one in own]
    return "\n\n".join([title, "\n".join(rows), picked])


def _row(row: Row) -> str:
    name = plain(row.name)
    if row.kind == "ours":
        name = f"**{name}**"
    return f"| {name} | {spread_text(row.dev)} | {spread_text(row.test)} |"


def _exported_scores(exported: Exported) -> str:
    """What the export changed."""
    if exported.max_difference is None:
        return ""
    lines = [
        f"Logits of random rows differ from PyTorch's by at most {exported.max_difference:.1e}."
    ]
    if exported.dev is not None:
        dev = exported.dev
        what = f"{metric_name(dev['metric'])} × 100 on {dev['examples']:,} dev examples"
        both = f"{100 * dev['model']:.2f} in fp32, {100 * dev['exported']:.2f} with these weights"
        lines.append(f"{what}: {both}, a loss of {100 * dev['loss']:.2f}.")
        lines.append(task_losses(dev))
    elif exported.weights != "fp32":
        cost = "The effect of 8-bit weights on the score was **not measured**"
        lines.append(f"{cost}: the model was exported without its run folder.")
    return " ".join(line for line in lines if line)


def _limits(source: Source, exported: Exported) -> str:
    tested = "Scores apply to texts like those it was tested on"
    trained = "It was trained only for this task."
    if members_of(source.task):
        trained = "It was trained only for these tasks."
    if source.others:
        trained = "It answers only for this task, not for those that it was trained with."
    lines = [
        f"- {trained}",
        f"- It reads at most {source.length} tokens; the rest of a longer text is ignored.",
        f"- {tested}; other sources, times or languages were not tested.",
        "- Errors and biases in the labels are learnt as well.",
    ]
    if "MatMul" in STEPS[exported.weights]:
        rounded = "Activations are rounded by their range in a batch"
        lines.append(f"- {rounded}: logits depend slightly on the other rows.")
    return "\n".join(lines)
