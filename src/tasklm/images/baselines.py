"""Cheap models beside a network: the majority, and logistic regression on features of images.

Features are small pixels, histograms of colours, and histograms of the directions of edges in parts
of the image (as HOG's, without its overlapping blocks).
"""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.images.data_set import ImageData, Numbers, Pictures
from tasklm.images.decoding import Pixels

MAJORITY, LINEAR = "majority", "pixels, colours and edges + linear"
SIDE = 8  # of small pixels
LEVELS = 8  # of a colour's histogram
PARTS, DIRECTIONS = 4, 8  # parts of the image in each direction; directions of edges
STRENGTHS = (0.003, 0.03, 0.3)  # C
MOST_FITTED = 10_000  # images
AT_ONCE = 4096

Floats = NDArray[np.float32]


def baseline_labels(data: ImageData) -> dict[str, dict[str, list[int]]]:
    """The numbers of classes that each baseline predicts for dev and test."""
    usual = Counter(data.train.labels.tolist()).most_common(1)[0][0]
    held = data.held_out
    rows = {MAJORITY: {name: [usual] * len(part) for name, part in held.items()}}
    if held:
        model = _fitted(data.train, data.dev)
        rows[LINEAR] = {
            name: model.predict(features_of(part.pixels)).tolist() for name, part in held.items()
        }
    return rows


def features_of(pixels: Pixels) -> Floats:
    """The features of images (images, features)."""
    blocks = [_features(pixels[at : at + AT_ONCE]) for at in range(0, len(pixels), AT_ONCE)]
    return np.concatenate(blocks)


def _features(pixels: Pixels) -> Floats:
    values = pixels.astype(np.float32) / 255.0
    small = _means(values, min(SIDE, values.shape[1])).reshape(len(values), -1)
    return np.concatenate([small, _colours(pixels), _edges(values.mean(-1))], 1)


def _means(maps: Floats, side: int) -> Floats:
    """The means of side × side parts of maps (images, size, size, …)."""
    edges = np.linspace(0, maps.shape[1], side + 1).astype(int)[:-1]
    sums = np.add.reduceat(np.add.reduceat(maps, edges, 1), edges, 2)
    sizes = np.diff([*edges, maps.shape[1]])
    area = (sizes[:, None] * sizes[None]).astype(np.float32)
    return np.asarray(sums / area.reshape(1, side, side, *[1] * (maps.ndim - 3)), np.float32)


def _colours(pixels: Pixels) -> Floats:
    """Histograms of each colour."""
    levels = (pixels.astype(np.int64) * LEVELS) // 256
    shares = []
    for colour in range(3):
        own = levels[..., colour].reshape(len(pixels), -1)
        at = own + LEVELS * np.arange(len(pixels))[:, None]
        counts = np.bincount(at.ravel(), minlength=LEVELS * len(pixels))
        shares.append(counts.reshape(len(pixels), LEVELS) / own.shape[1])
    return np.concatenate(shares, 1).astype(np.float32)


def _edges(grey: Floats) -> Floats:
    """Histograms of the directions of edges in parts of the image, by their strength."""
    down, right = np.zeros_like(grey), np.zeros_like(grey)
    down[:, 1:-1] = grey[:, 2:] - grey[:, :-2]
    right[:, :, 1:-1] = grey[:, :, 2:] - grey[:, :, :-2]
    strength = np.hypot(down, right)
    bins = ((np.arctan2(down, right) % np.pi) / np.pi * DIRECTIONS).astype(int) % DIRECTIONS
    maps = np.zeros((*grey.shape, DIRECTIONS), np.float32)
    np.put_along_axis(maps, bins[..., None], strength[..., None], -1)
    parts = _means(maps, min(PARTS, grey.shape[1])).reshape(len(grey), -1)
    norms = np.linalg.norm(parts, axis=1, keepdims=True)
    return np.asarray(parts / np.maximum(norms, 1e-6), np.float32)


def _fitted(train: Pictures, dev: Pictures | None) -> Any:
    """Logistic regression, whose strength is chosen on dev where there is one."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    some: Numbers = np.unique(np.linspace(0, len(train) - 1, MOST_FITTED).astype(np.int64))
    features, labels = features_of(train.pixels[some]), train.labels[some]
    best, best_score = None, -1.0
    strengths = STRENGTHS if dev is not None and len(dev) else STRENGTHS[1:2]
    for strength in strengths:
        model = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=100))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(features, labels)
        score = 0.0
        if dev is not None and len(dev):
            score = float((model.predict(features_of(dev.pixels)) == dev.labels).mean())
        if score > best_score:
            best, best_score = model, score
    return best
