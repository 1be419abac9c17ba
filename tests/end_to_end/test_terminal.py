"""What a newcomer sees of a whole `fit`: in a narrow terminal, in a pipe, and in the run folder."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tasklm.cli.app import app
from tasklm.pipeline.flow import fit
from tasklm.recipe.toml import load
from tasklm.tracking import SILENT
from tests.conftest import labelled, sentences, write_jsonl
from tests.end_to_end.conftest import options

COLUMNS = 60
UP = "\x1b[1A"  # the cursor goes up a line
CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def seen_in_a_terminal(command: list[str], environment: dict[str, str]) -> tuple[str, list[str]]:
    """What a command writes into a terminal, raw and as the lines that stay there."""
    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    process = subprocess.Popen(command, stdin=there, stdout=there, stderr=there, env=environment)
    os.close(there)
    written = b""
    while True:
        try:
            part = os.read(here, 65536)
        except OSError:  # the other side was closed
            break
        written += part
    os.close(here)
    raw = written.decode()
    lines: list[str] = []
    for line in raw.split("\n"):
        del lines[len(lines) - line.count(UP) :]  # what stands there is erased
        lines.append(CONTROL.sub("", line).rstrip("\r").rsplit("\r", 1)[-1].rstrip())
    assert process.wait() == 0, lines[-5:]
    return raw, [line for line in lines if line]


def environment(**more: str) -> dict[str, str]:
    left_out = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
    return {
        **{name: value for name, value in os.environ.items() if name not in left_out},
        "TERM": "xterm-256color",
        **more,
    }


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("terminal")
    rows = labelled(120, 0)
    write_jsonl(folder / "train.jsonl", [*rows, *rows[:7]])  # with repeats, which are warned of
    write_jsonl(folder / "test.jsonl", labelled(40, 1))
    write_jsonl(folder / "corpus.jsonl", [{"text": text} for text in sentences(120, 2)])
    words = [
        sys.executable,
        "-m",
        "tasklm",
        "fit",
        str(folder / "train.jsonl"),
        "--out",
        str(folder / "run"),
    ]
    for key, value in options(folder, finetune__epochs="1", evaluate__bootstrap="100").items():
        words += [f"--{key}", value] if key not in ("data.train", "data.dev") else []
    return words


@pytest.fixture(scope="module")
def first(command: list[str]) -> tuple[str, list[str]]:
    """The first run, in a terminal."""
    return seen_in_a_terminal(command, environment())


def test_a_terminal_shows_short_lines_the_result_and_what_to_type_next(
    first: tuple[str, list[str]], command: list[str]
) -> None:
    raw, lines = first
    labels = [line.split()[0] for line in lines if re.match(r"\S+ {2,}\S", line)]
    assert [label for label in labels if label not in ("warning", "stage")][:5] == [
        "data",
        "corpus",
        "details",
        "plan",
        "selected",
    ]
    assert any(line.startswith("warning   duplicates in train: 7;") for line in lines)
    run = Path(command[command.index("--out") + 1])
    assert any(line.startswith("stage 1   ") for line in lines) and any(
        line.startswith("stage 2   dev ") for line in lines
    )
    assert f'next      tasklm predict {run}/model "a text"' in CONTROL.sub("", raw)
    assert "majority" in " ".join(lines) and "TF-IDF + linear" in " ".join(lines)
    assert re.search(r"\x1b\[[0-9;]*36m", raw)  # colours
    for word in ("##", "[MASK]", "TFLOP", "matrix product", "rate", "GFLOP"):
        assert word not in raw, word


def test_no_line_is_wider_than_the_terminal_and_no_word_is_broken(
    first: tuple[str, list[str]],
) -> None:
    raw, lines = first
    paths = re.compile(r"^(model|report|next) {2,}")
    prose = [line for line in lines if not paths.match(line)]
    assert prose and max(map(len, prose)) <= COLUMNS
    frames = [CONTROL.sub("", frame) for frame in re.split(r"[\r\n]+", raw)]
    bars = [frame for frame in frames if re.match(r"stage [12]", frame) and "%" in frame]
    assert bars and max(len(bar.rstrip()) for bar in bars) <= COLUMNS
    words = " ".join(prose).split()
    assert {"duplicates", "delete", "selection"} <= set(words)


def test_the_run_folder_has_all_the_rest(first: tuple[str, list[str]], command: list[str]) -> None:
    run = Path(command[command.index("--out") + 1])
    log = (run / "log.txt").read_text(encoding="utf-8")
    for words in (
        "a row of 32 tokens: [CLS]",
        "masked tokens to predict: ",
        "plan: ",
        "encoder: bert",
        "tokens/s",
        "learning rate",
    ):
        assert words in log, words
    events = [
        json.loads(line) for line in (run / "events.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert {"started", "message", "step", "verdict"} <= {event["event"] for event in events}


def test_a_pipe_gets_plain_lines_and_json_alone_on_standard_output(
    first: tuple[str, list[str]], command: list[str]
) -> None:
    plain = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True)
    for text in (plain.stdout, plain.stderr):
        assert "\x1b" not in text and "\r" not in text
    lines = plain.stderr.splitlines()
    assert lines[0].startswith("data: train ")
    assert any(line.startswith("warning: duplicates in train: 7;") for line in lines)
    assert "\nnext: tasklm predict " in plain.stdout
    done = subprocess.run(
        [*command, "--json", "--verbose"],
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
    )
    assert json.loads(done.stdout)["metric"] in ("accuracy", "macro_f1")
    assert "plan: layers 1 and width 32: as given" in done.stderr.splitlines()


def test_without_colours_a_terminal_gets_none(
    first: tuple[str, list[str]], command: list[str]
) -> None:
    raw, lines = seen_in_a_terminal(command, environment(NO_COLOR="1"))
    assert not re.search(r"\x1b\[[0-9;]*[349][0-9]m", raw) and lines[0].startswith(
        "data      train "
    )


def test_who_stops_a_run_is_told_how_it_goes_on(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tasklm.pipeline.flow.fit", interrupted)
    result = CliRunner().invoke(
        app, ["fit", str(files / "train.jsonl"), "--out", str(tmp_path / "run")]
    )
    assert result.exit_code == 130
    assert result.stderr.splitlines() == ["stopped: run the same command to continue"]


def test_a_budget_that_buys_few_steps_is_warned_of(files: Path, tmp_path: Path) -> None:
    given = options(files, budget__flops="2e9")
    del given["train.steps"]
    fit(load(None, given), tmp_path / "run", SILENT, until="train")
    steps = json.loads((tmp_path / "run" / "stage1" / "plan.json").read_text(encoding="utf-8"))[
        "stage1"
    ]["steps"]
    warning = f"stage 1 has few steps ({steps}): raise --flops or lower --tokens.length"
    assert f"warning: {warning}\n" in (tmp_path / "run" / "log.txt").read_text(encoding="utf-8")
