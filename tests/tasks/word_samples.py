"""What the tests of tags and of parses share: a toy tokeniser, and writing of files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Letters:
    """Two letters a token; a word of signs alone has none."""

    cls, sep, unk = 1, 2, 3

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        pairs = [
            [text[i : i + 2] for i in range(0, len(text), 2)] if text.isalnum() else []
            for text in texts
        ]
        return [[10 + sum(map(ord, pair)) for pair in text] for text in pairs]


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def lines(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


CONLLU = """# sent_id = 1
# text = Im Haus regnet's
1-2\tIm\t_\t_\t_\t_\t_\t_\t_\t_
1\tIn\tin\tADP\tAPPR\t_\t3\tcase\t_\t_
2\tdem\tder\tDET\tART\t_\t3\tdet\t_\t_
3\tHaus\tHaus\tNOUN\tNN\t_\t4\tobl\t_\t_
4\tregnet\tregnen\tVERB\tVVFIN\t_\t0\troot\t_\tSpaceAfter=No
4.1\tja\tja\tADV\t_\t_\t_\t_\t4:advmod\t_
5\t's\tes\tPRON\tPPER\t_\t4\texpl\t_\t_

# sent_id = 2
1\tJa\tja\tINTJ\tITJ\t_\t0\troot\t_\t_
"""
