"""Results → Markdown tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_ABOUT = """\
# BM25 selection beside other engines

Written by `benchmarks/selection.py`; {machine}; {date}. Every engine had the same text and queries in the same run, in
processes of its own held to {cores}, one after the other.

- **Text**: windows of {shortest} to {longest} words at random places of the corpus "{corpus}"; no two are the same window. Queries are
  windows of documents that no passage is from. All of it is split into folded words beforehand and joined by spaces, so that
  vocabularies agree.
- **Build**: passages per CPU-second (user + system, all threads) from text to an index on disk; ours reads a tasklm store of the passages.
- **Memory**: most resident memory of the process, mapped files included, while building / while searching. Java's heap is held to 2 GB.
- **Queries**: per CPU-second, index open and code compiled before the clock runs. Ours and the probe get all {queries:,} queries in one
  call, as a task asks them; the others answer one after the other and stop when {limit:g} CPU-seconds are spent. In brackets: how many
  times as fast ours is.
- **Overlap**: share of the exact k best (float64, brute force, {sample} queries) that was found, ties counted as equal. tantivy and Lucene
  keep the length of a passage in one byte, so their order is another one by design.
"""


def markdown(
    results: list[dict[str, Any]], whole: dict[str, Any] | None, about: dict[str, Any]
) -> str:
    """The whole page."""
    parts = [_ABOUT.format(**about)]
    parts += [_size(result) for result in results]
    if whole is not None:
        parts.append(_whole(whole))
    return "\n".join(parts)


def _size(result: dict[str, Any]) -> str:
    engines = result["engines"]
    runs = [
        (run["words"], run["k"])
        for run in next((one["search"]["runs"] for one in engines.values() if "search" in one), [])
    ]
    heads = [f"{words} words, K = {k}" for words, k in runs]
    lines = [f"## {result['passages']:,} passages", ""]
    lines += [f"{result['words']:,} words, {result['bytes'] / 1e6:,.0f} MB of text.", ""]
    lines += _table(
        ["engine", "build, passages/CPU-s", "index, MB", "memory, MB"],
        engines,
        lambda name: _build_cells(engines, name),
    )
    lines += ["", "Queries per CPU-second:", ""]
    lines += _table(
        ["engine", *heads], engines, lambda name: [_rate_cell(engines, name, run) for run in runs]
    )
    lines += ["", "Overlap with exact:", ""]
    lines += _table(
        ["engine", *heads],
        engines,
        lambda name: [_overlap_cell(engines, name, run) for run in runs],
    )
    return "\n".join([*lines, ""])


def _table(
    heads: list[str], engines: dict[str, Any], cells: Callable[[str], list[str]]
) -> list[str]:
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, engine in engines.items():
        label = engine.get("build", {}).get("version", name)
        lines.append(f"| {' | '.join([label, *cells(name)])} |")
    return lines


def _ratio(ours: float | None, theirs: float | None) -> str:
    return f" ({ours / theirs:,.1f}×)" if ours and theirs else ""


def _build_rate(engines: dict[str, Any], name: str) -> float | None:
    built = engines.get(name, {}).get("build")
    return built["passages"] / max(built["cpu_seconds"], 1e-9) if built else None


def _build_cells(engines: dict[str, Any], name: str) -> list[str]:
    engine = engines[name]
    if "build" not in engine:
        return [f"failed: {engine['failed']}", "", ""]
    rate = _build_rate(engines, name)
    ratio = "" if name == "ours" else _ratio(_build_rate(engines, "ours"), rate)
    memory = [
        f"{engine[phase]['peak_memory'] / 1e6:,.0f}" if phase in engine else "failed"
        for phase in ("build", "search")
    ]
    return [
        f"{rate:,.0f}{ratio}",
        f"{engine['build']['index_bytes'] / 1e6:,.0f}",
        " / ".join(memory),
    ]


def _run(engines: dict[str, Any], name: str, run: tuple[int, int]) -> dict[str, Any] | None:
    runs = engines.get(name, {}).get("search", {}).get("runs", [])
    return next((one for one in runs if (one["words"], one["k"]) == run), None)


def _rate(run: dict[str, Any] | None) -> float | None:
    return run["queries"] / max(run["cpu_seconds"], 1e-9) if run else None


def _rate_cell(engines: dict[str, Any], name: str, run: tuple[int, int]) -> str:
    rate = _rate(_run(engines, name, run))
    if rate is None:
        return f"failed: {engines[name].get('failed', '')}"
    ratio = "" if name == "ours" else _ratio(_rate(_run(engines, "ours", run)), rate)
    return f"{rate:,.1f}{ratio}"


def _overlap_cell(engines: dict[str, Any], name: str, run: tuple[int, int]) -> str:
    found = _run(engines, name, run)
    return f"{found['overlap']:.4f}" if found else "failed"


def _whole(whole: dict[str, Any]) -> str:
    store, index, search = whole["store"], whole["index"], whole["search"]
    lines = [
        "## A whole corpus, all cores",
        "",
        (
            f"{store['passages']:,} passages, "
            f"{store['bytes'] / 1e6:,.0f} MB of text, {whole['cores']} cores, ours only."
        ),
        "",
        "| step | seconds | CPU-seconds | memory, MB |",
        "|---|---|---|---|",
    ]
    steps = {
        "corpus → passages, with compiling": store,
        f"passages → index ({index['index_bytes'] / 1e6:,.0f} MB)": index,
        f"{search['queries']:,} texts, K = {search['k']}": search,
    }
    for name, step in steps.items():
        lines.append(
            f"| {name} | {step['seconds']:,.1f} | "
            f"{step['cpu_seconds']:,.1f} | {step['peak_memory'] / 1e6:,.0f} |"
        )
    return "\n".join([*lines, ""])
