"""A run of seconds with every kind of artefact: influence selection, two seeds, an ensemble and a
comparison."""

from __future__ import annotations

import json
import random
from pathlib import Path

SETTINGS = {
    "model.size": "tiny",
    "model.layers": "1",
    "model.width": "16",
    "model.heads": "2",
    "tokens.length": "16",
    "tokens.vocabulary": "300",
    "train.steps": "8",
    "train.batch": "16",
    "train.checkpoint_seconds": "0",
    "finetune.epochs": "2",
    "finetune.seeds": "2",
    "finetune.batch": "32",
    "select.method": "bm25,influence",
    "select.k": "10",
    "select.passages": "60",
    "select.influence_steps": "4",
    "evaluate.ensemble": "true",
    "evaluate.compare": "random",
    "evaluate.bootstrap": "100",
    "hardware.device": "cpu",
    "hardware.precision": "fp32",
    "hardware.threads": "1",
}
WORDS = (
    "the cat dog farmer engine bird likes sees hears follows "
    "repairs red green cold long empty ball field water road house music"
)


def write_data(folder: Path) -> Path:
    """Writes a labelled set that can be learnt and a corpus to a new folder, which is returned."""
    folder.mkdir(parents=True)
    draw = random.Random(1)

    def text(words: int) -> str:
        return " ".join(draw.choice(WORDS.split()) for _ in range(words))

    for name, count in (("train", 64), ("dev", 24), ("test", 24)):
        texts = [text(8) for _ in range(count)]
        _write(
            folder / f"{name}.jsonl",
            [{"text": one, "label": "yes" if "water" in one else "no"} for one in texts],
        )
    _write(folder / "corpus.jsonl", [{"text": text(40), "source": f"s{i % 3}"} for i in range(120)])
    return folder


def _write(path: Path, rows: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def fit_command(data: Path, out: Path, trainings: int = 1) -> list[str]:
    """The words of the command that does the whole run, with so many trainings of stage 1."""
    words = [
        "fit",
        str(data / "train.jsonl"),
        "--corpus",
        str(data / "corpus.jsonl"),
        "--out",
        str(out),
    ]
    for name in ("dev", "test"):
        words += [f"--{name}", str(data / f"{name}.jsonl")]
    for key, value in {**SETTINGS, "train.seeds": str(trainings)}.items():
        words += [f"--{key}", value]
    return words
