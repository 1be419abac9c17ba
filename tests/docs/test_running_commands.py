"""The commands of the start page and of README's "Your own data" are run, with small trainings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.docs.blocks import ROOT, Block, blocks, commands, is_shell

NOT_RUN = ("serve", "watch", "demo")  # two go on until they are stopped, one takes minutes


def section(page: Path, title: str) -> list[Block]:
    """Returns the shell blocks under a heading of the second level."""
    lines = page.read_text(encoding="utf-8").splitlines()
    start = lines.index(f"## {title}")
    end = next((number for number in range(start + 1, len(lines)) if lines[number].startswith("## ")), len(lines))
    return [block for block in blocks(page) if start < block.line <= end and is_shell(block)]


def run_all(page_blocks: list[Block], run_cli: Callable[[list[str]], str]) -> list[str]:
    """Runs the commands of tasklm in order; returns their verbs."""
    words = [
        list(command.words[1:]) for block in page_blocks if is_shell(block) for command in commands(block) if command.words[0] == "tasklm"
    ]
    ran = [line for line in words if line[0] not in NOT_RUN]
    for line in ran:
        run_cli(line)
    return [line[0] for line in ran]


def test_the_commands_of_the_readme_run(scratch: Path, run_cli: Callable[[list[str]], str]) -> None:
    ran = run_all(section(ROOT / "README.md", "Your own data"), run_cli)
    assert ran[:2] == ["check", "fit"] and len(ran) >= 9
    assert (scratch / "runs/first/report.html").exists()


def test_the_commands_of_the_start_page_run(scratch: Path, run_cli: Callable[[list[str]], str]) -> None:
    ran = run_all(blocks(ROOT / "docs" / "start.md"), run_cli)
    assert {"init", "check", "fit", "report", "predict", "explain", "run"} <= set(ran)
