"""The verbs that score text with the language model of a run: score and rerank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from tasklm.cli.images import refuse_image_folders
from tasklm.console.terminal import say
from tasklm.errors import RecipeError
from tasklm.storage.json_lines import json_line
from tasklm.tracking import Tracker

if TYPE_CHECKING:  # torch is imported only when needed, so that --help is instant
    from tasklm.evaluate.likelihood import Likelihood, Scorer
    from tasklm.evaluate.reranking import CandidateList

screen = Console(stderr=True)

RunFolder = Annotated[
    Path,
    typer.Argument(
        help="Run folder whose stage 1 has the objective mlm, bilm, two-tower, electric or "
        "electra-tt."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(help="Write the JSON lines to this file instead of standard output."),
]


def score(
    run: RunFolder,
    file: Annotated[
        Path,
        typer.Argument(
            help="Texts: plain text, one per line, or a table (CSV, TSV, JSONL, Parquet)."
        ),
    ],
    out: Out = None,
    text_column: Annotated[str | None, typer.Option(help="Column with the text.")] = None,
    per_token: Annotated[
        bool, typer.Option("--per-token", help="Also list every token with its score.")
    ] = False,
) -> None:
    """Score texts by their likelihood.

    The score is the pseudo-log-likelihood, the sum of log p(token | the other tokens): one JSON
    object per text. Higher (closer to 0) is more likely. Texts longer than the model's rows are
    split into windows, and the window scores are summed.

    Example: tasklm score runs/first texts.txt --out scores.jsonl
    """
    from tasklm.recipe.data_sections import Data
    from tasklm.tasks.readers.texts import label_name, read_text_examples

    scorer = _scorer(run)
    examples, _ = read_text_examples(file, Data(text_column=text_column or ""), False, label_name)
    likelihoods = _scored(scorer, [example.text for example in examples])
    rows = []
    for number, (example, likelihood) in enumerate(zip(examples, likelihoods, strict=True), 1):
        row = {
            "number": number,
            "line": example.line,
            **_numbers(likelihood),
            "left_out": likelihood.left_out,
            "text": example.text,
        }
        if per_token:
            pieces = [
                scorer.model.vocabulary.tokenizer.id_to_token(token) for token in likelihood.tokens
            ]
            row["scores"] = list(zip(pieces, likelihood.scores, strict=True))
        rows.append(row)
    _write(rows, out)
    tokens = sum(len(likelihood.scores) for likelihood in likelihoods)
    mean = ""
    if tokens:
        total = sum(likelihood.total for likelihood in likelihoods)
        mean = f", {total / tokens:.3f} per token"
    _say(
        f"{len(likelihoods):,} texts, {tokens:,} tokens{mean} "
        f"(objective {scorer.model.settings.objective})"
    )
    if cut := sum(likelihood.windows > 1 for likelihood in likelihoods):
        _say(
            f"{cut:,} of the texts are longer than "
            f"{scorer.model.length - 2} tokens: split into windows, with their scores summed"
        )


def rerank(
    run: RunFolder,
    file: Annotated[Path, typer.Argument(help="Lists of candidates, as JSON lines.")],
    dev: Annotated[
        Path | None,
        typer.Option(
            help="Lists with references or answers, used to choose λ from 0.05, 0.10, … 1.00."
        ),
    ] = None,
    weight: Annotated[
        float | None,
        typer.Option(help="Value of λ, instead of --dev; 1 if neither is given.", min=0.0),
    ] = None,
    errors: Annotated[
        str, typer.Option(help="What an error rate counts: words or characters.")
    ] = "words",
    out: Out = None,
) -> None:
    """Re-rank lists of candidates by likelihood.

    Chooses from each list the candidate with the largest score + λ · pseudo-log-likelihood. A line
    is {"id": 1, "candidates": [{"text": "a text", "score": -1.5}, …], "reference": "a text"}. The
    optional reference is what was really said: --dev uses it, and the word error rate is reported.
    An answer, an index from 0 or a text, does the same for accuracy.

    Example: tasklm rerank runs/first lists.jsonl --dev dev-lists.jsonl
    """
    from tasklm.evaluate.reranking import best_weight, read_candidates
    from tasklm.evaluate.word_errors import UNITS

    if errors not in UNITS:
        raise RecipeError([f"--errors {errors!r}: choose from {', '.join(UNITS)}"])
    if dev is not None and weight is not None:
        raise RecipeError(["--dev chooses λ and --weight sets it; give only one of them"])
    lists, tuning = read_candidates(file), read_candidates(dev) if dev is not None else []
    scorer = _scorer(run)
    if dev is not None:
        likelihoods = _likelihoods(scorer, tuning)
        weight = best_weight(tuning, likelihoods, dev, errors)
        _say(f"λ = {weight}, chosen on {dev}: {_quality(tuning, likelihoods, weight, errors)}")
    elif weight is None:
        weight = 1.0
        _say("λ = 1 by default; --dev FILE would fit it to the scale of the scores")
    likelihoods = _likelihoods(scorer, lists)
    _write(
        [_choice(each, scores, weight) for each, scores in zip(lists, likelihoods, strict=True)],
        out,
    )
    _say(f"λ = {weight}: {_quality(lists, likelihoods, weight, errors)}")


def _scorer(run: Path) -> Scorer:
    refuse_image_folders([run], "score", "a model of images has no likelihood of texts")
    from tasklm.device.machine import set_up
    from tasklm.evaluate.likelihood import Scorer
    from tasklm.models.language_model import load_language_model
    from tasklm.recipe.schema import Hardware

    # fp32: the score of a text must not depend on how the machine multiplies
    return Scorer(load_language_model(run, set_up(Hardware(precision="fp32")).device))


def _scored(scorer: Scorer, texts: Sequence[str]) -> list[Likelihood]:
    with Tracker(screen).progress("score", len(texts)) as bar:
        return list(scorer.scored(texts, bar))


def _likelihoods(scorer: Scorer, lists: Sequence[CandidateList]) -> list[list[float]]:
    texts = list(chain.from_iterable(each.texts for each in lists))
    scored = iter(_scored(scorer, texts))
    return [[next(scored).total for _ in each.texts] for each in lists]


def _choice(each: CandidateList, likelihoods: Sequence[float], weight: float) -> dict[str, Any]:
    chosen = each.chosen(likelihoods, weight)
    score, pll = each.scores[chosen], likelihoods[chosen]
    row = {
        "id": each.id,
        "choice": chosen,
        "text": each.texts[chosen],
        "score": score,
        "pll": pll,
        "sum": score + weight * pll,
    }
    return row if each.right is None else {**row, "right": chosen in each.right}


def _quality(
    lists: Sequence[CandidateList],
    likelihoods: Sequence[Sequence[float]],
    weight: float,
    unit: str,
) -> str:
    """The error rates where there are references, and the accuracy where there are answers."""
    from tasklm.evaluate.reranking import Errors

    errors = Errors.of(lists, unit)
    if not errors.total:
        return _accuracies(lists, likelihoods, weight)
    rates = errors.rates(likelihoods, weight)
    line = (
        f"{unit.removesuffix('s')} error rate {rates.chosen:.2f} % ({rates.by_score:.2f} % with "
        f"the scores alone, {rates.least:.2f} % at best) on {rates.lists:,} lists with a reference"
    )
    if any(each.right is not None for each in lists):
        return f"{line}; {_accuracies(lists, likelihoods, weight)}"
    return line


def _accuracies(
    lists: Sequence[CandidateList], likelihoods: Sequence[Sequence[float]], weight: float
) -> str:
    from tasklm.evaluate.reranking import accuracy

    after, before = accuracy(lists, likelihoods, weight), accuracy(lists, likelihoods, 0.0)
    known = [each for each in lists if each.right is not None]
    if after is None or before is None:
        return f"{len(lists):,} lists, none with an answer"
    missing = sum(not each.right for each in known)
    lost = f"; {missing:,} of them lack the answer among the candidates" if missing else ""
    return (
        f"accuracy {after:.3f} ({before:.3f} with the scores alone) on {len(known):,} lists with "
        f"an answer{lost}"
    )


def _numbers(likelihood: Likelihood) -> dict[str, Any]:
    return {
        "pll": likelihood.total,
        "tokens": len(likelihood.scores),
        "pll_per_token": likelihood.per_token,
    }


def _write(rows: Iterable[dict[str, Any]], out: Path | None) -> None:
    from tasklm.storage.files import write_text

    lines = [json_line(row, to_file=out is not None) for row in rows]
    if out is None:
        for line in lines:
            typer.echo(line)
    else:
        write_text(out, "".join(f"{line}\n" for line in lines))
        _say(f"wrote {out}")


def _say(message: str) -> None:
    say(screen, message)
