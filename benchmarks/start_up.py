"""How long a person waits for a first answer: the help, and predictions by a linear model of words,
an ONNX export and a network, beside Python and PyTorch alone.

    python benchmarks/start_up.py
    python benchmarks/start_up.py --model runs/first/model --rounds 9 --verbs

Without `--model` small ones are made first, for a made-up task; all have a linear part. The export
needs the packages of tasklm[onnx]. Bytecode is written to a folder of its own, since an installed
package has it. Each time is the shortest of several rounds, in which the commands take turns. Where
other work shares the machine, that of the processor tells more than that of the clock.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tasklm.encoders.base import Shape
from tasklm.export.exporting import export
from tasklm.models.task_model import ModelDescription, TaskModel, new_encoder, save_models
from tasklm.recipe.data_sections import Kind
from tasklm.recipe.model_sections import Tokens
from tasklm.tasks.base import TASKS
from tasklm.tasks.examples import Example
from tasklm.tokens.tokenizer import train_vocabulary
from tasklm.train.stages import silenced

TASKLM = [sys.executable, "-m", "tasklm"]
VERBS = [
    "fit",
    "run",
    "init",
    "check",
    "select",
    "tokenize",
    "train",
    "finetune",
    "evaluate",
    "report",
    "predict",
]
VERBS += ["search", "explain", "bill", "export", "score", "rerank", "serve", "watch", "demo"]


class Seconds(NamedTuple):
    """How long a command took: by the clock, and of the processor."""

    clock: float
    processor: float


def run(command: list[str], environment: dict[str, str]) -> Seconds:
    """The seconds of a command, which must succeed."""
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Seconds(time.perf_counter() - start, processor)


def made_up(count: int) -> list[Example]:
    """Examples of two classes."""
    draw, examples = random.Random(0), []
    words = [("good", "lovely"), ("good", "fine"), ("bad", "dull"), ("bad", "poor")]
    for number in range(count):
        label, word = draw.choice(words)
        examples.append(Example((f"a {word} story about number {number}",), label))
    return examples


def write_models(work: Path) -> dict[str, Path]:
    """Small models for a made-up task, by what they are: a linear model of words alone, the same
    beside a network of random weights, and the ONNX export of both together.
    """
    train = made_up(300)
    task = TASKS.get("classify").from_examples(train, Kind())
    wide = task.fit_wide(train, train[:50], task.metrics[0]).wide
    vocabulary = train_vocabulary([[example.text for example in train]], Tokens(), 300)
    shape = Shape(len(vocabulary), layers=1, width=32, heads=2, feedforward=64, positions=64)
    described = ModelDescription("bert", shape, task, vocabulary, shape.positions)
    about = {"metric": task.metrics[0], "dev": 1.0, "test": None}
    for name in ("linear", "network"):
        alone = name == "linear"
        head = task.head(shape.width, 0.0)
        model = TaskModel(new_encoder("bert", shape), silenced(head) if alone else head, True)
        save_models(work / name, described, [model], {**about, "linear": alone}, wide)
    export(work / "network", "onnx", work / "onnx")
    return {
        "LINEAR-MODEL": work / "linear",
        "ONNX-EXPORT": work / "onnx",
        "NETWORK": work / "network",
    }


def commands(models: Mapping[str, Path], verbs: bool) -> dict[str, list[str]]:
    """The commands, by the names that they have in the table."""
    python = [sys.executable, "-c"]
    rows = {
        'python -c "pass"': [*python, "pass"],
        'python -c "import torch"': [*python, "import torch"],
        'python -c "import tasklm"': [*python, "import tasklm"],
        "tasklm --help": [*TASKLM, "--help"],
    }
    for verb in VERBS if verbs else ["fit"]:
        rows[f"tasklm {verb} --help"] = [*TASKLM, verb, "--help"]
    for name, folder in models.items():
        rows[f'tasklm predict {name} "a text"'] = [*TASKLM, "predict", str(folder), "a text"]
    return rows


def measure(rows: Mapping[str, list[str]], rounds: int, bytecode: Path) -> dict[str, Seconds]:
    """The shortest times of each command over some rounds."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(bytecode)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for command in rows.values():  # writes the bytecode
        run(command, environment)
    times = [
        {name: run(command, environment) for name, command in rows.items()} for _ in range(rounds)
    ]
    shortest = {}
    for name in rows:
        clock, processor = zip(*(seconds[name] for seconds in times), strict=True)
        shortest[name] = Seconds(min(clock), min(processor))
    return shortest


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="a trained model, in place of new ones")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--verbs", action="store_true", help="the help of every verb, not of `fit` alone"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tasklm-start-up-") as folder:
        models = {"MODEL": options.model} if options.model else write_models(Path(folder))
        rows = commands(models, options.verbs)
        seconds = measure(rows, options.rounds, Path(folder) / "bytecode")
    print("| command | seconds | of the processor |\n|---|---|---|")
    for name, (clock, processor) in seconds.items():
        print(f"| `{name}` | {clock:.2f} | {processor:.2f} |")


if __name__ == "__main__":
    main()
