"""Translation: BLEU and chrF of trained models beside the baselines, and how fast texts
are written.

    python benchmarks/translation.py --data translate/multi30k_en_de_tok --work /tmp/bench \
        --recipe recipes/translate.toml --seeds 3 --tests test,test_2017
    python benchmarks/translation.py --data translate/multi30k_en_de_tok --work /tmp/bench \
        --corpus captions/ --extra="--train.steps 4000" --decoding

The folder of data has train, dev and the tests as SPLIT.jsonl or SPLIT.jsonl.gz with rows
{"source", "target"}. --pairs takes the first so many training pairs. --decoding compares writing
with a cache, in batches, with reading the whole text again for every token, and with `generate` of
transformers, where it is installed, on a decoder of the same layers and widths with random weights,
in turns, the shortest of three rounds. --run takes a run that is there in place of training one.
The same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shlex
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from tasklm.errors import TaskLMError
from tasklm.pipeline.flow import fit
from tasklm.recipe.toml import load
from tasklm.serve.predictor import Predictor
from tasklm.tasks.base import score
from tasklm.tasks.text_metrics import text_metric
from tasklm.tracking import Tracker

METRICS = ("bleu", "chrf", "bleu_tokenised")
TIMED = 256  # sources whose texts are timed
ROUNDS = 3


def main() -> None:
    """Trains what is missing, and prints the scores."""
    options = _options()
    try:
        data = _prepare(options)
        run = options.run
        if run is None:
            run = options.work / _name(options)
            fit(load(options.recipe, _settings(options, data)), run, Tracker())
        _scores(options, run, data)
        if options.decoding:
            _decoding(run, data["dev"])
    except TaskLMError as error:
        raise SystemExit(f"{error}") from None


def _options() -> argparse.Namespace:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder with {train,dev,test}.jsonl(.gz)")
    add("--work", type=Path, required=True, help="folder for data and runs")
    add("--corpus", help="file, folder or glob of raw text in both languages")
    add("--recipe", type=Path, help="recipe to start from")
    add("--run", type=Path, help="a finished run to score and time")
    add("--minutes", type=float, help="budget of a run; otherwise that of the recipe")
    add("--seeds", type=int, default=1, help="fine-tunings")
    add("--pairs", type=int, help="training pairs; default: all")
    add("--tests", default="test", help="names of the test sets, joined by commas")
    add("--extra", default="", help='further options: --extra="--kind.decoder lstm"')
    add("--decoding", action="store_true", help="also time the writing of texts")
    return parser.parse_args()


def _name(options: argparse.Namespace) -> str:
    """The name of the run, by what it is trained with."""
    parts = [options.data.name, options.pairs or "all", options.minutes or "recipe"]
    extra = "".join(sign if sign.isalnum() else "-" for sign in options.extra)
    return "-".join(map(str, [*parts, "text" if options.corpus else "alone", extra])).strip("-")


def _prepare(options: argparse.Namespace) -> dict[str, Path]:
    """The splits as plain files in the work folder, the first of the tests as test."""
    folder = options.work / f"{options.data.name}-{options.pairs or 'all'}"
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for split in ("train", "dev", *options.tests.split(",")):
        paths[split] = folder / f"{split}.jsonl"
        most = options.pairs if split == "train" else None
        lines = islice(_lines(options.data, split), most)
        paths[split].write_text("".join(lines), encoding="utf-8")
    return paths


def _lines(folder: Path, split: str) -> list[str]:
    plain, packed = folder / f"{split}.jsonl", folder / f"{split}.jsonl.gz"
    if plain.exists():
        return plain.read_text(encoding="utf-8").splitlines(keepends=True)
    with gzip.open(packed, "rt", encoding="utf-8") as file:
        return file.readlines()


def _settings(options: argparse.Namespace, data: dict[str, Path]) -> dict[str, Any]:
    first = options.tests.split(",")[0]
    settings: dict[str, Any] = {
        "data.kind": "translate",
        "data.train": str(data["train"]),
        "data.dev": str(data["dev"]),
        "data.test": str(data[first]),
        "data.leaks": "keep",
        "finetune.seeds": options.seeds,
    }
    if options.corpus:
        settings["data.corpus"] = options.corpus
    if options.minutes:
        settings["budget.minutes"] = options.minutes
    words = shlex.split(options.extra)
    for key, value in zip(words[::2], words[1::2], strict=True):
        settings[key.removeprefix("--")] = value
    return settings


def _scores(options: argparse.Namespace, run: Path, data: dict[str, Path]) -> None:
    """Prints the rows of the run's table, and the best model's scores on every test."""
    table = json.loads((run / "scores.json").read_text(encoding="utf-8"))
    print(f"{'':28} {'dev':>6} {'test':>6}   ({table['metric']} × 100)")
    for row in table["rows"]:
        sides = [100 * row[split]["mean"] for split in ("dev", "test")]
        print(f"{row['name'][:28]:28} {sides[0]:6.2f} {sides[1]:6.2f}")
    predictor = Predictor(run / "model")
    for test in options.tests.split(","):
        rows = [json.loads(line) for line in data[test].read_text(encoding="utf-8").splitlines()]
        texts = [answer["target"] for answer in predictor.answers([row["source"] for row in rows])]
        gold = [(row["target"],) for row in rows]
        found = {name: 100 * score(text_metric(name), gold, texts) for name in METRICS}
        print(test, "  ".join(f"{name} {value:.2f}" for name, value in found.items()))


def _decoding(run: Path, dev: Path) -> None:
    """Prints texts per second of several ways to write the same texts."""
    lines = dev.read_text(encoding="utf-8").splitlines()[:TIMED]
    sources = [json.loads(line)["source"] for line in lines]
    predictor = Predictor(run / "model")
    ways: dict[str, Callable[[Sequence[str]], Any]] = {}
    for beam in (1, 5):
        at_once = predictor.searching(beam)
        ways[f"beam {beam}, in batches"] = at_once.answers
        ways[f"beam {beam}, one by one"] = lambda texts, of=at_once: [
            of.answers([one]) for one in texts[: TIMED // 8]
        ]
    generate = _transformers(predictor, sources)
    if generate is not None:
        ways["transformers, generate with beam 5 and a cache, random weights"] = generate
    seconds = {name: float("inf") for name in ways}
    with torch.inference_mode():
        for write in ways.values():
            write(sources[:8])  # the first call also allocates
        for _ in range(ROUNDS):
            for name, write in ways.items():
                started = time.perf_counter()
                write(sources)
                seconds[name] = min(seconds[name], time.perf_counter() - started)
    print(f"{len(sources)} texts on {predictor.answering.device}, texts per second:")
    for name, took in seconds.items():
        count = TIMED // 8 if name.endswith("one by one") else len(sources)
        print(f"  {name}: {count / took:.1f}")
    if generate is not None:
        ratio = seconds[list(ways)[-1]] / seconds["beam 5, in batches"]
        print(f"  beam 5, in batches, beside generate: {ratio:.2f} times as fast")


def _transformers(predictor: Predictor, sources: Sequence[str]) -> Callable[..., None] | None:
    """Writes the texts of sources by BART with the same layers, widths and lengths; None without
    the package.
    """
    try:
        from transformers import BartConfig, BartForConditionalGeneration
    except ImportError:
        return None
    shape, task = predictor.model.encoder.shape, predictor.task.to_dict()
    config = BartConfig(
        vocab_size=shape.vocabulary,
        max_position_embeddings=512,
        d_model=shape.width,
        encoder_layers=shape.layers,
        decoder_layers=task["decoder_layers"],
        encoder_attention_heads=shape.heads,
        decoder_attention_heads=shape.heads,
        encoder_ffn_dim=shape.feedforward,
        decoder_ffn_dim=4 * shape.width,
    )
    device = torch.device(predictor.answering.device)
    model = BartForConditionalGeneration(config).to(device).eval()
    encoded = predictor.loaded.encoded([predictor.task.example_of(text) for text in sources])
    written = predictor.answers(sources)
    lengths = predictor.loaded.vocabulary.encode([answer["target"] for answer in written])

    def generate(texts: Sequence[str]) -> None:
        for groups in encoded.blocks(64):
            batch = encoded.padded(groups[: len(texts)]).to(device)
            most = 1 + max(len(lengths[group]) for group in groups)  # as many as ours takes
            model.generate(
                input_ids=batch.ids,
                attention_mask=(batch.pieces > 0).long(),
                num_beams=5,
                min_new_tokens=most,
                max_new_tokens=most,
            )
            if len(texts) < 64:
                return

    return generate


if __name__ == "__main__":
    main()
