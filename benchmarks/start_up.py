"""How long a person waits for a first answer: four commands beside Python and PyTorch alone.

    python benchmarks/start_up.py
    python benchmarks/start_up.py --model runs/first/model --rounds 9 --verbs

Without `--model` a small one is trained first, for a made-up task; it has a wide part. Bytecode is
written to a folder of its own, since an installed package has it. Each time is the shortest of
several rounds, in which the commands take turns.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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
VERBS += ["search", "explain", "export", "score", "rerank", "serve", "watch", "demo"]
SMALL = {
    "train.steps": 5,
    "finetune.epochs": 1,
    "finetune.seeds": 1,
    "model.layers": 1,
    "model.width": 32,
}


def run(command: list[str], environment: dict[str, str]) -> float:
    """The seconds of a command, which must succeed."""
    start = time.perf_counter()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return time.perf_counter() - start


def train_model(work: Path, environment: dict[str, str]) -> Path:
    """A small model for a made-up task of two classes."""
    draw, rows = random.Random(0), ["text,label"]
    for number in range(300):
        label, word = draw.choice(
            [("good", "lovely"), ("good", "fine"), ("bad", "dull"), ("bad", "poor")]
        )
        rows.append(f"a {word} story about number {number},{label}")
    (work / "train.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    options = [word for key, value in SMALL.items() for word in (f"--{key}", str(value))]
    run(
        [*TASKLM, "fit", str(work / "train.csv"), "--out", str(work / "run"), *options], environment
    )
    return work / "run" / "model"


def commands(model: Path, verbs: bool) -> dict[str, list[str]]:
    """The commands, by the names that they have in the table."""
    python = [sys.executable, "-c"]
    help_of = VERBS if verbs else ["fit"]
    return {
        'python -c "pass"': [*python, "pass"],
        'python -c "import torch"': [*python, "import torch"],
        'python -c "import tasklm"': [*python, "import tasklm"],
        "tasklm --help": [*TASKLM, "--help"],
        **{f"tasklm {verb} --help": [*TASKLM, verb, "--help"] for verb in help_of},
        'tasklm predict MODEL "a text"': [*TASKLM, "predict", str(model), "a text"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="a trained model, in place of a new one")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--verbs", action="store_true", help="the help of every verb, not of `fit` alone"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tasklm-start-up-") as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(Path(folder) / "bytecode")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        model = options.model or train_model(Path(folder), environment)
        rows = commands(model, options.verbs)
        for command in rows.values():  # writes the bytecode
            run(command, environment)
        times = [
            {name: run(command, environment) for name, command in rows.items()}
            for _ in range(options.rounds)
        ]
    print("| command | seconds |\n|---|---|")
    for name in rows:
        print(f"| `{name}` | {min(seconds[name] for seconds in times):.2f} |")


if __name__ == "__main__":
    main()
