"""Reports with every part, for tests: scores of a small task, and analyses in the form that a run
gives them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tasklm.evaluate.intervals import Predicted
from tasklm.evaluate.scores import Costs, RowInputs, Scores, make_row
from tasklm.evaluate.verdict import with_verdict
from tasklm.report.report import ReportParts
from tasklm.tasks.classify import Classify


@cache
def scores(text: str) -> Scores:
    """The scores of our model, an ablation and a baseline called `text`, over three seeds."""
    random = np.random.default_rng(0)
    gold = random.integers(0, 2, 80)
    ours, near = (np.where(random.random((3, 80)) < right, gold, 1 - gold) for right in (0.9, 0.8))
    names = [str(number) for number in gold]
    mine, theirs = (
        Predicted(names, [[str(number) for number in row] for row in predicted])
        for predicted in (ours, near)
    )
    task, other = Classify(["0", "1"]), Predicted(names, [["0"] * 80])
    costs = Costs(
        flops_6nd=2.79e15,
        flops_exact=2e15,
        seconds=95,
        parameters=4_300_000,
        selected_passages=4000,
        selected_tokens=512_000,
    )
    inputs = [
        RowInputs(text, "baseline", task, "macro_f1", other, other, mine),
        RowInputs("random selection", "ablation", task, "macro_f1", theirs, theirs, mine),
        RowInputs("TLM", "ours", task, "macro_f1", mine, mine, costs=costs),
    ]
    rows = [make_row(one) for one in inputs]
    return with_verdict(
        Scores(
            "macro_f1",
            ["a", "b"],
            rows,
            {"train_examples": 1200, text: text, "corpus": {"passages": 987}},
            seeds=3,
        )
    )


def insights(
    text: str, labels: int = 3, points: int = 60, layers: int = 2, heads: int = 4, tokens: int = 12
) -> dict[str, Any]:
    """What the analyses give, each holding `text` wherever a person's text can stand."""
    random = np.random.default_rng(1)

    def bins(shift: float) -> dict[str, Any]:
        found = [
            {
                "confidence": 0.05 + n / 10,
                "accuracy": min(1.0, max(0.0, n / 10 + shift)),
                "count": n * n,
            }
            for n in range(10)
        ]
        return {"ece": 0.0625 + shift, "nll": 0.4375, "bins": found}

    number = random.integers(0, labels, points)
    centres = random.normal(0, 4, (labels, 2))
    stages = ("before training", "after stage 1", "after stage 2")
    placed = [
        random.normal(0, 1, (points, 2)) + strength * centres[number] for strength in (0, 0.5, 2)
    ]
    kinds = ("positional", "vertical", "both", "other")
    grid = [
        {
            "layer": layer,
            "head": head,
            "kind": kinds[(layer + head) % 4],
            "positional": 0.95,
            "vertical": 0.125,
            "picture": random.dirichlet(np.full(tokens, 0.3), tokens).tolist(),
        }
        for layer in range(1, layers + 1)
        for head in range(1, heads + 1)
    ]
    counted = {
        kind: sum(one["kind"] in (kind, "both") for one in grid)
        for kind in ("positional", "vertical")
    }
    return {
        "calibration": {
            "split": "test",
            "temperature": 1.375,
            "before": bins(-0.03),
            "after": bins(0.0),
        },
        "class_vectors": {
            "labels": [f"{text} {at}" for at in range(labels)],
            "number": number.tolist(),
            "texts": [f"{text} {at}" for at in range(points)],
            "stages": [
                {"name": name, "points": where.tolist()}
                for name, where in zip(stages, placed, strict=True)
            ],
        },
        "attention": {
            "tokens": tokens,
            "shown": [text] * tokens,
            "texts": 36,
            **counted,
            "total": len(grid),
            "heads": grid,
        },
        "label_words": [
            {
                "label": f"{text} {at}",
                "words": [
                    {
                        "word": text,
                        "pmi": 2.75 - n / 10,
                        "selected": 812.5 / (n + 1),
                        "corpus": 32.5 * n,
                        "examples": 41 - n,
                    }
                    for n in range(12)
                ],
            }
            for at in range(labels)
        ],
    }


def full(text: str, **sizes: int) -> ReportParts:
    """A report with every part, each holding `text` wherever a person's text can stand."""
    supporting = {"label": text, "text": text, "score": 0.625, "shared": [text], "where": text}
    return ReportParts(
        title=text,
        scores=scores(text),
        findings=[
            {"level": level, "check": text, "message": text, "examples": [text] * 9}
            for level in ("note", "error", text)
        ],
        curves=[
            {
                "step": s,
                "stage": text,
                "seed": 1,
                "mlm_loss": 9 / (s + 1),
                "dev_f1": s / 50,
                text: 1.0,
            }
            for s in range(50)
        ],
        split="test",
        seed="seed 2 of 3, the best on dev",
        confusion=([text, "b"], [[3, 1], [0, 4]]),
        mistakes=[
            {
                "text": text,
                "gold": text,
                "predicted": "b",
                "probability": 0.99,
                "supporting": [supporting],
            }
        ]
        * 30,
        selected=[
            {
                "id": text,
                "text": text,
                "source": text,
                "score": 3.25,
                "rank": 1,
                "matched_queries": [text] * 5,
                "matched": [text],
            }
        ]
        * 10,
        selected_sources={text: 70, "news": 30},
        selected_ranks=[1, 1, 2, 7],
        selected_scores=[1.5, 2.5, 2.5],
        words=[(text, 1.25, 17)],
        words_random=[(text, 1.5, 18)],
        contamination=[{"text": text, "split": "test"}],
        raw_text={
            "answers": 9,
            "right": 5,
            "right_before": 3,
            "gained": 4,
            "lost": 2,
            "cases": [
                {
                    "word": text,
                    "text": text,
                    "gold": text,
                    "before": text,
                    "count": count,
                    "texts": [text] * count,
                }
                for count in range(7)
            ],
        },
        recipe_toml=text,
        command=text,
        made_with=text,
        reading=[text],
        notes=[text],
        **insights(text, **sizes),
    )
