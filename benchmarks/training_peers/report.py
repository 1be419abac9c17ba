"""Results by device → one page of Markdown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from tasklm.storage.files import read_json, require_file
from training_peers.cases import MASK_RATE, parse_case

PLAIN = (
    "transformers",
    "transformers-eager",
    "transformers-fp32",
    "transformers-dropout",
)  # the fastest of these is what the others are compared with

_ABOUT = f"""\
# Training beside other code

Written by `benchmarks/training.py`. Masked language modelling from random weights: forward, backward, gradients clipped to 1.0,
AdamW step, with the data pipeline running and masks ({100 * MASK_RATE:g} % of the tokens; of these 80 % [MASK], 10 % random, 10 % kept)
drawn afresh for every step.

- **Runs**: each engine has a process of its own; engines take turns, round after round. Warm-up steps (compilation among them)
  are not timed; the device is waited for at both ends. Tokens per second: the median of the rounds, in brackets the range.
- **Text**: the same token shards for all. The peers read rows that were packed before the clock runs, as plain full rows: no
  boundaries between the pieces of a row, as the public code of TLM (*NLP From Scratch Without Large-Scale Pretraining*, arXiv
  2111.04130) and the library's collator have it. Ours packs while it trains and keeps attention inside each piece: more work.
- **Engines**: `transformers` is BertForMaskedLM in a plain loop as the public code of TLM has it (DataLoader,
  DataCollatorForLanguageModeling, AdamW, linear schedule), with the attention that a user gets (sdpa); `-eager` and `-fp32` are the
  same with eager attention and in fp32, and `-dropout` with BERT's dropout of 0.1, as TLM trains; the others have none, as ours has
  none in stage 1. The fastest of these is the **reference**. `trainer` is transformers.Trainer with the
  flags that its documentation recommends for speed. It trains without dropout. Beside a GPU the peers get
  DataLoader workers, which the public code of TLM does without.
- **Useful TFLOP/s**: what the step needs when only the masked tokens are predicted, and what follows the attention of the last layer is
  computed for them alone; counted exactly and alike for every engine (`tasklm.budget.costs.EncoderCost`), not what an engine spends.
  **Ceiling**: the best of several blocks of one large square matrix product.
- **Memory**: most bytes allocated on the GPU; on a CPU the most resident memory of the process.
- **Loss** at the first and at the last step, as a check that an engine really trains; numbers of steps may differ, so it is no contest.
"""


def markdown(devices: dict[str, Any]) -> str:
    """The whole page: a section for each device, a table for each shape."""
    return page(_ABOUT, devices, _case)


def page(about: str, devices: dict[str, Any], section: Callable[[str, dict[str, Any]], str]) -> str:
    """A page of Markdown: what is measured, then for each device a section of every case."""
    parts = [about]
    for device, cases in devices.items():
        parts.append(f"## {device}\n")
        parts += [section(name, case) for name, case in cases.items()]
    return "\n".join(parts)


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The results by device and shape; a shape that was measured again replaces the old one."""
    return {device: {**old.get(device, {}), **new.get(device, {})} for device in {**old, **new}}


def read_results(files: list[Path]) -> dict[str, Any]:
    """What earlier runs wrote, joined; of a shape in several files the last one."""
    found: dict[str, Any] = {}
    for file in files:
        found = merged(
            found, read_json(require_file(file, "Name another file with --merge."))["devices"]
        )
    return found


def summary(name: str, case: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The numbers of every engine of a case: speeds, ratio to the reference, useful TFLOP/s, share
    of the ceiling.
    """
    engines = case["engines"]
    speeds = {
        engine: [run["tokens"] / run["seconds"] for run in one["runs"]]
        for engine, one in engines.items()
        if engine != "ceiling"
    }
    middle = {engine: median(found) for engine, found in speeds.items() if found}
    reference = max(
        (engine for engine in PLAIN if engine in middle), key=middle.__getitem__, default=None
    )
    ceiling = max(
        (run["tflops"] for run in engines.get("ceiling", {}).get("runs", [])), default=None
    )
    parsed = parse_case(name, case["about"]["vocabulary"])
    numbers: dict[str, dict[str, Any]] = {}
    for engine, speed in middle.items():
        tflops = parsed.useful_flops(speed) / 1e12
        numbers[engine] = {
            "tokens_per_second": speed,
            "slowest": min(speeds[engine]),
            "fastest": max(speeds[engine]),
            "ratio": speed / middle[reference] if reference else None,
            "reference": engine == reference,
            "tflops": tflops,
            "of_ceiling": tflops / ceiling if ceiling else None,
            "memory": max(run["peak_memory"] for run in engines[engine]["runs"]),
        }
    return numbers


def _case(name: str, case: dict[str, Any]) -> str:
    about, engines = case["about"], case["engines"]
    parsed, numbers = parse_case(name, about["vocabulary"]), summary(name, case)
    shape = parsed.shape
    lines = [
        (
            f"### {_count(shape.layers, 'layer')} of width "
            f"{shape.width}, {parsed.rows} rows of {parsed.length} tokens"
        ),
        "",
        f"{about['date']}; {about['software']}; "
        f"{_count(about['threads'], 'CPU thread')}; vocabulary {about['vocabulary']:,}; "
        f"{about['text']}; {100 * about['padding']:.1f} % of the packed rows is padding.",
        "",
        (
            "| engine | tokens/s | of the reference | "
            "useful TFLOP/s | of the ceiling | memory, GB | loss |"
        ),
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        _row(engine, one, numbers.get(engine))
        for engine, one in engines.items()
        if engine != "ceiling"
    ]
    lines.append("")
    lines += [_settings(engine, one) for engine, one in engines.items() if one["runs"]]
    return "\n".join([*lines, ""])


def _row(engine: str, one: dict[str, Any], numbers: dict[str, Any] | None) -> str:
    if numbers is None:
        return f"| {engine} | not available ({one.get('failed', 'not run')}) | | | | | |"
    last = one["runs"][-1]
    ratio = (
        ""
        if numbers["ratio"] is None
        else f"{numbers['ratio']:.2f}×" + (" (reference)" if numbers["reference"] else "")
    )
    cells = [
        engine,
        (
            f"{numbers['tokens_per_second']:,.0f} "
            f"({numbers['slowest']:,.0f} to {numbers['fastest']:,.0f})"
        ),
        ratio,
        f"{numbers['tflops']:.3g}",
        "" if numbers["of_ceiling"] is None else f"{100 * numbers['of_ceiling']:.1f} %",
        f"{numbers['memory'] / 1e9:.2f}",
        f"{last['first_loss']:.2f} → {last['last_loss']:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def _settings(engine: str, one: dict[str, Any]) -> str:
    run = one["runs"][-1]
    rounds = _count(len(one["runs"]), "round")
    amount = (
        f"best {max(run['tflops'] for run in one['runs']):.3g} TFLOP/s"
        if engine == "ceiling"
        else f"{run['steps']} steps a round"
    )
    failed = f"; then failed: {one['failed']}" if "failed" in one else ""
    return f"- {engine}: {run['version']}; {run['settings']}; {rounds}, {amount}{failed}"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"
