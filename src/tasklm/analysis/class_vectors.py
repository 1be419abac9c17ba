"""How well the encoder separates the classes: the vectors that the head reads, in two dimensions.

t-SNE (van der Maaten and Hinton, "Visualizing Data using t-SNE", 2008), as figure 4 of "Farewell to
Aimless Large-scale Pretraining" (ISS, arXiv 2305.12816) shows encoders. Neighbours in the picture
are neighbours in the vector space; distances between groups, and the axes, mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tasklm.device.machine import Machine
from tasklm.tasks.base import Task
from tasklm.tasks.examples import Example
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.tokenizer import Vocabulary

MOST, FEWEST = 200, 8  # examples: more would take seconds, fewer have no neighbours
TEXT = 160  # characters shown of a text
PERPLEXITY = 30.0  # of scikit-learn and of most published pictures; less where there are few points
# half of scikit-learn's: on 500 points the divergence was within 0.3 % of its end by then
STEPS = 500
SEED = 0
BATCH = 64


def class_vectors(
    stages: Iterable[tuple[str, nn.Module]],
    task: Task,
    examples: Sequence[Example],
    vocabulary: Vocabulary,
    length: int,
    machine: Machine,
) -> dict[str, Any] | None:
    """What the report draws: {"labels", "number", "texts", "stages": [{"name", "points"}]}.

    None with fewer than FEWEST examples.

    `stages` are names and encoders. "labels" are the names of the classes, "number" the class of
    each example, "points" its (x, y). Of many examples, MOST spread evenly over them are taken.
    """
    if len(examples) < FEWEST:
        return None
    numbers = np.linspace(0, len(examples) - 1, min(MOST, len(examples))).round()
    some = [examples[int(number)] for number in numbers]
    place = {label: number for number, label in enumerate(task.labels)}
    encoded = EncodedExamples.of(task, some, vocabulary, length)
    return {
        "labels": list(task.labels),
        "number": [place[str(example.label)] for example in some],
        "texts": [_cut(example.text) for example in some],
        "stages": [
            {"name": name, "points": in_the_plane(vectors_of(encoder, encoded, machine)).tolist()}
            for name, encoder in stages
        ],
    }


def vectors_of(
    encoder: nn.Module, examples: EncodedExamples, machine: Machine
) -> NDArray[np.float64]:
    """The first vector (examples, width) that the head reads of each example."""
    vectors: NDArray[np.float64] | None = None
    was_training = encoder.training
    encoder.eval()
    with torch.inference_mode(), machine.arithmetic():
        for groups, rows in examples.in_order(BATCH):
            batch = rows.to(machine.device)
            assert batch.places is not None
            states = encoder(batch, batch.flat_places()).unflatten(0, batch.places.shape)
            first = states[:, 0].double().cpu().numpy()
            if vectors is None:
                vectors = np.zeros((len(examples.units), first.shape[1]))
            vectors[examples.numbers_of(groups)] = first
    encoder.train(was_training)
    assert vectors is not None
    return vectors


def in_the_plane(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """The points (examples, 2) of t-SNE, the same every time.

    It starts from the principal components, with a fixed seed, on one thread.
    """
    # imported here: they take a second, and every command would wait for it
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    if not np.ptp(vectors, axis=0).any():  # principal components would divide by 0
        return np.zeros((len(vectors), 2))
    perplexity = min(PERPLEXITY, (len(vectors) - 1) / 3)
    tsne = TSNE(2, perplexity=perplexity, init="pca", random_state=SEED, max_iter=STEPS)
    # sums over threads differ slightly every time, and t-SNE amplifies that
    with threadpool_limits(1):
        points: NDArray[np.float64] = np.asarray(tsne.fit_transform(vectors), np.float64)
    return points.round(3)


def _cut(text: str) -> str:
    return text if len(text) <= TEXT else text[: TEXT - 1] + "…"
