"""Every command of README.md and docs/ is run, page by page, with small trainings, but for those of
one table that says why not.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.docs.blocks import PAGES, ROOT, Command, blocks, commands, is_shell
from tests.docs.commands import LEFT_OUT
from tests.docs.page_files import HUB, provide
from tests.select.elastic_double import serving

# Commands with all these words are not run. test_blocks.py still checks their verbs, options,
# targets and extras.
NOT_RUN: dict[tuple[str, ...], str] = {
    ("make", "demo"): "takes minutes of training by design; tests/demo/ has its data",
    ("make", "test"): "is what runs this",
    ("python3", "-m", "venv"): "another program",
    ("source",): "another program",
    ("pip", "install"): "another program, which asks a package index",
    ("hf", "download"): "another program, which asks a hub",
    ("tasklm", "spark://host:7077"): "needs a cluster; tests/select/test_spark.py runs the engine",
    (
        "torchrun",
        "tasklm",
    ): "starts processes of its own, 15 s each; tests/train/test_parallel.py trains with several",
    (
        "python",
        "benchmarks/power_cuts.py",
    ): "takes minutes; tests/end_to_end/test_disks.py runs it small",
    (
        "python",
        "benchmarks/damages.py",
    ): "takes an hour; tests/end_to_end/test_disks.py runs it small",
    (
        "python",
        "benchmarks/text_bill.py",
    ): "reads a corpus of its own; tests/benchmarks/test_text_bill.py runs it small",
    (
        "tasklm",
        "--coverage",
        "0.95",
    ): "takes 19 examples of dev; the commands of how-to/coverage.md run with other shares",
    ("tasklm", "study"): "trains a table of models; tests/studying/ runs a small one",
    (
        "python",
        "benchmarks/label_next.py",
    ): "reads real tasks; tests/benchmarks/test_label_next.py runs it small",
    ("cat",): "another program; tests/labelling joins files so",
    ("tasklm", "more.jsonl"): "reads what cat makes; tests/labelling reads such files",
    (
        "unshare",
    ): "needs a system that allows it; tests/end_to_end/test_no_network.py trains in a namespace",
    (
        "python",
        "benchmarks/selections.py",
    ): "takes hours of training by design; tests/benchmarks/test_selections.py runs it small",
}
ELSEWHERE = {"serve", "watch", "curl"}  # test_running_services.py starts and asks these
SHELL_COMMANDS: dict[Path, list[Command]] = {
    page: [command for block in blocks(page) if is_shell(block) for command in commands(block)]
    for page in PAGES
}


def reason_not_to_run(command: Command) -> str | None:
    """Returns why a command is not run, or None."""
    found = [
        reason
        for words, reason in NOT_RUN.items()
        if command.words[0] == words[0] and set(words) <= set(command.words)
    ]
    return found[0] if found else None


def to_run() -> dict[Path, list[tuple[str, ...]]]:
    """Returns page → words of the commands to run on it; what stands on several pages word by word
    is run on the first.
    """
    found: dict[Path, list[tuple[str, ...]]] = {}
    seen: set[tuple[str, ...]] = set()
    for page, of_page in SHELL_COMMANDS.items():
        for command in of_page:
            if (
                command.words in seen
                or reason_not_to_run(command)
                or ELSEWHERE & set(command.words[:2])
            ):
                continue
            found.setdefault(page, []).append(command.words)
        seen |= {command.words for command in of_page}
    return found


def filled_in(words: list[str], earlier: list[list[str]]) -> list[str]:
    """The words with what stands for something in its place: … for earlier arguments, an id of a
    passage, our recipes.
    """
    found: list[str] = []
    for word in words:
        if word == LEFT_OUT:
            found += next(line[1:] for line in reversed(earlier) if line[0] == words[0])
        elif found and found[-1] == "--explain":
            found.append(
                str(pq.read_table("runs/first/selected/selected.parquet")["id"][0].as_py())
            )
        else:
            found.append(str(ROOT / word) if word.startswith("recipes/") else word)
    return found


@pytest.mark.parametrize("page", to_run(), ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_run(
    page: Path,
    scratch: Path,
    finished: Path,
    run_cli: Callable[[list[str]], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(scratch / HUB))
    earlier: list[list[str]] = []
    for program, *rest in to_run()[page]:
        assert program == "tasklm", f"{page}: {program} is neither run nor in NOT_RUN"
        provide(rest, finished, run_cli)
        words = filled_in(rest, earlier)
        with serving() as server:
            run_cli([server.url if word == "http://127.0.0.1:9200" else word for word in words])
        earlier.append(words)


def test_no_reason_is_stale() -> None:
    found = [command for of_page in SHELL_COMMANDS.values() for command in of_page]
    for words in NOT_RUN:
        assert any(
            command.words[0] == words[0] and set(words) <= set(command.words) for command in found
        ), words
    ran = [words for of_page in to_run().values() for words in of_page]
    assert len(ran) > 60
    assert {
        "fit",
        "run",
        "init",
        "check",
        "select",
        "search",
        "tokenize",
        "report",
        "predict",
        "explain",
        "score",
        "rerank",
        "export",
    } <= {words[1] for words in ran}
