"""The code blocks of README.md and docs/, and the commands in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

COMMANDS = (
    "tasklm",
    "torchrun",
    "make",
    "pip",
    "python",
    "python3",
    "git",
    "curl",
    "hf",
    "cd",
    "tensorboard",
    "uvicorn",
    "docker",
)
SHELL = ("sh", "bash", "shell", "console")
OUTPUT = (
    "",
    "text",
    "json",
    "jsonl",
)  # of these only "" may hold commands, where its first line is one
_FENCE = re.compile(r"^(\s*)(```+|~~~+)\s*([\w+-]*)")
_FIRST_WORD = re.compile(r"^(?:\w+=\S+ )*([\w.]+)")


@dataclass(frozen=True)
class Block:
    """A fenced block, or an indented line that is a command."""

    page: Path
    line: int  # of its first line, from 1 on
    language: str
    text: str

    @property
    def name(self) -> str:
        """Where it stands."""
        return (
            f"{self.page.relative_to(ROOT)}:{self.line}"
            if self.page.is_relative_to(ROOT)
            else f"{self.page.name}:{self.line}"
        )


@dataclass(frozen=True)
class Command:
    """A command line, as words, without its comment."""

    block: Block
    words: tuple[str, ...]


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    found: list[Block] = []
    fence, start, language, inside = "", 0, "", list[str]()
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        match = _FENCE.match(line)
        if not fence:
            if match:
                fence = match[2]
                start = number + 1
                language = match[3].lower()
                inside = []
                indent = len(match[1])
            elif line.startswith("    ") and _starts_a_command(line):
                found.append(Block(page, number, "sh", line.strip()))
        elif match and line.strip() == fence:
            found.append(Block(page, start, language, "\n".join(inside)))
            fence = ""
        else:
            inside.append(line[indent:] if not line[:indent].strip() else line)
    assert not fence, f"{page}: the block of line {start - 1} has no end"
    return found


def _starts_a_command(line: str) -> bool:
    match = _FIRST_WORD.match(line.strip().removeprefix("$ "))
    return match is not None and match[1] in COMMANDS


def is_shell(block: Block) -> bool:
    """Whether a block holds commands: it says so, or has no language and begins with one."""
    first = next((line for line in block.text.splitlines() if line.strip()), "")
    return block.language in SHELL or (not block.language and _starts_a_command(first))


def commands(block: Block) -> Iterator[Command]:
    """Yields the commands of a shell block: lines after "$ " where there are such, else all but
    answers: JSON and indented lines.
    """
    lines = re.sub(r"\\\n\s*", " ", block.text).splitlines()
    asked = [line.strip()[2:] for line in lines if line.strip().startswith("$ ")]
    for line in asked or [line for line in lines if not line.startswith(("{", "[", " "))]:
        reader = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        reader.whitespace_split = True
        part: list[str] = []
        for word in [*reader, "|"]:
            if set(word) <= set("|&;"):
                if part:
                    yield Command(block, tuple(part))
                part = []
            else:
                part.append(word)
