"""Whatever goes wrong, the command line ends in words, with the right exit code, and never in a
traceback."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tasklm.cli import last_resort
from tasklm.cli.app import main
from tasklm.errors import RunError
from tasklm.serve.predictor import Predictor
from tasklm.storage import json_lines
from tasklm.storage.json_lines import json_line
from tasklm.tokens.tokenizer import Vocabulary
from tests.conftest import labelled, write_jsonl
from tests.serve.models import random_model

Ended = tuple[int, str, str]  # exit code, standard output, standard error
Run = Callable[..., Ended]


class Panic(BaseException):
    """As libraries in Rust raise it."""


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Path:
    """The folder of a random model of kind classify."""
    return random_model(tmp_path_factory.mktemp("random") / "classify", "classify", vocabulary)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Gives what runs a command line in this process, and returns how it ended."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv(last_resort.RESTARTS, str(last_resort.MOST_RESTARTS))

    def run(*words: str, stdin: bytes = b"") -> Ended:
        out, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["tasklm", *words])
            for name, stream in (
                ("stdin", io.TextIOWrapper(io.BytesIO(stdin))),
                ("stdout", out),
                ("stderr", errors),
            ):
                patch.setattr(sys, name, stream)
            with pytest.raises(SystemExit) as ended:
                main()
        out.seek(0), errors.seek(0)
        err = errors.read()
        assert "Traceback" not in err and "Aborted" not in err
        code = ended.value.code or 0
        assert isinstance(code, int)
        return code, out.read(), err

    return run


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Gives what makes `tasklm fit` fail inside with an error."""

    def fail_with(error: BaseException) -> None:
        def fit(recipe: Any, out: Path, *rest: Any) -> None:
            out.mkdir(parents=True, exist_ok=True)
            raise error

        monkeypatch.setattr("tasklm.pipeline.flow.fit", fit)

    return fail_with


@pytest.mark.parametrize(
    "error",
    [
        ValueError("odd\nvalue"),
        KeyError("lost"),
        AssertionError(),
        EOFError(),
        EOFError("No data left in file"),
        RecursionError("deep"),
        UnicodeEncodeError("utf-8", "\ud800", 0, 1, ("surrogates not allowed")),
        Panic("index out of bounds"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_nobody_foresaw_is_one_line_and_a_file_in_the_run_folder(
    run: Run, failing: Callable[[BaseException], None], error: BaseException, tmp_path: Path
) -> None:
    failing(error)
    code, out, err = run("fit", "train.csv", "--out", "runs/a")
    assert (
        code == 1
        and out == ""
        and err.count("\n") == 1
        and err.startswith("error: unexpected error (")
    )
    (file,) = (tmp_path / "runs" / "a").glob("traceback-*.txt")
    assert str(file.relative_to(tmp_path)) in err
    written = file.read_text(encoding="utf-8")
    assert (
        "Traceback (most recent call last)" in written
        and type(error).__name__ in written
        and "command: 'tasklm' 'fit'" in written
    )


def test_without_a_run_folder_the_traceback_is_in_the_temporary_folder(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tasklm.recipe.toml.load", lambda *given: 1 // 0)
    code, _, err = run("fit", "train.csv", "--out", "runs/none")
    (file,) = tmp_path.glob("tasklm-traceback-*.txt")
    assert (
        code == 1 and str(file) in err and "ZeroDivisionError" in file.read_text(encoding="utf-8")
    )
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "not there"))
    code, _, err = run("fit", "train.csv")
    assert code == 1 and "could not be written" in err


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "out of memory. Close other programs, or lower"),
        (
            RuntimeError(
                "DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"
            ),
            "out of memory",
        ),
        (
            ImportError("libtorch_cpu.so: failed to map segment from shared object"),
            "out of memory",
        ),
        (
            torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel"),
            "out of GPU memory (CUDA error: out of memory)",
        ),
        (
            torch.AcceleratorError("CUDA error: unspecified launch failure\nFor"),
            "the GPU failed (CUDA error: unspecified launch failure). Run",
        ),
        (
            RuntimeError("Triton Error [CUDA]: unspecified launch failure"),
            "the GPU failed (Triton Error [CUDA]: unspecified launch failure). Run",
        ),
        (
            RuntimeError("Triton Error [CUDA]: out of memory"),
            "out of GPU memory (Triton Error [CUDA]: out of memory)",
        ),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"),
            "out of GPU memory (CUDA error: CUBLAS_STATUS_ALLOC_FAILED",
        ),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried"),
            "out of GPU memory (CUDA out of memory)",
        ),
        (RuntimeError("can't start new thread"), "the system cannot start more threads"),
        (
            OSError(errno.ENAMETOOLONG, "File name too long", "x" * 5000),
            "File name too long. Give another path.",
        ),
        (
            OSError(errno.ELOOP, "Too many levels of symbolic links", "a"),
            "a: Too many levels of symbolic links. Remove the circular",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", "a"),
            "a: Permission denied. Check the permissions.",
        ),
    ],
)
def test_what_the_system_lacks_is_told_with_the_way_out(
    run: Run,
    failing: Callable[[BaseException], None],
    error: BaseException,
    words: str,
    tmp_path: Path,
) -> None:
    failing(error)
    code, _, err = run("fit", "train.csv", "--out", "runs/a")
    assert code == 2 and words in err and len(err) < 600
    assert not list(tmp_path.rglob("*traceback*"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--hardware.device", "cuda:77"], "hardware.device = 'cuda:77'"),
        (["--hardware.device", "meta"], "hardware.device = 'meta' cannot be used here"),
        (["--hardware.threads", "1000000"], "hardware.threads = '1000000': must be at most 1024"),
        (["--train.steps", "9" * 5000], "train.steps"),
        (["--train.steps", "9" * 400], "train.steps = '9999"),
        (["--train.rho2", "1e999"], "train.rho2 = '1e999': must be a number"),
        (["--model.layers", "1000000000"], "model.layers = '1000000000': must be at most 256"),
        (["--data.dev", "a\0b"], r"data.dev = 'a\x00b': must be UTF-8 text without NUL"),
        (["--data.dev", "x" * 5000], "too long"),
    ],
    ids=lambda given: str(given)[:40],
)
def test_options_that_cannot_be_are_told_in_words(
    run: Run, options: list[str], words: str, tmp_path: Path
) -> None:
    write_jsonl(tmp_path / "train.jsonl", labelled(20, 1))
    code, out, err = run("fit", "train.jsonl", "--out", "run", *options)
    assert code == 2 and out == "" and words in err and len(err) < 700


def test_bytes_on_the_command_line_that_are_no_utf8_are_named(run: Run) -> None:
    code, _, err = run("check", os.fsdecode(b"caf\xe9.csv"))
    assert code == 2 and r"'caf\xe9.csv' on the command line is not UTF-8" in err


def test_links_that_lead_in_a_circle_are_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    write_jsonl(tmp_path / "train.jsonl", labelled(20, 1))
    for words in (
        ["loop.csv", "--out", "a"],
        ["train.jsonl", "--test", "loop.csv", "--out", "b"],
        ["train.jsonl", "--out", "loop.csv"],
    ):
        code, _, err = run("check", *words)
        assert code == 2 and "loop.csv" in err, words
    code, _, err = run("run", "loop.csv")
    assert code == 2 and "the recipe cannot be read (Too many levels of symbolic links)" in err


def test_recipes_that_are_none_are_told_in_words(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    for content, words in (
        (b"[train]\nsteps = " + b"9" * 5000, "not valid TOML"),
        (b"a = " + b"[" * 5000 + b"]" * 5000, "too deep"),
        (b"\xff\xfe", "not valid TOML"),
        (b"[data]\ntrain = 'a'\ntrain = 'b'", "not valid TOML"),
        (b'[data]\ntrain = "a\\u0000b"', "without NUL"),
        (b"data = 3", "must be a section"),
    ):
        path.write_bytes(content)
        code, _, err = run("run", str(path))
        assert code == 2 and words in err, content[:20]
    path.unlink()
    os.mkfifo(path)
    code, _, err = run("run", str(path))
    assert code == 2 and "a named pipe" in err


def test_predict_takes_no_mistyped_path_for_a_text(
    run: Run, classifier: Path, tmp_path: Path
) -> None:
    write_jsonl(tmp_path / "test.jsonl", [{"text": "a text"}])
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    expected = {
        "tset.jsonl": (
            "tset.jsonl: there is no such file (did you mean "
            "'test.jsonl'?). Correct the path; if it is a text"
        ),
        "TSET.JSONL.GZ": "there is no such file",
        "./tset": "there is no such file",
        "nowhere/at/all": "there is no such file",
        "my texts.txt": "there is no such file",
        "folder/": "this is a folder",
        "pipe.csv": "not a regular file",
        "x" * 5000 + ".csv": "there is no such file",
    }
    for what, words in expected.items():
        code, out, error = run("predict", str(classifier), what)
        assert code == 2 and out == "" and words in error, what
    for text in ("tset.jsonl", "and/or"):  # the way out
        code, out, _ = run("predict", str(classifier), stdin=text.encode() + b"\n")
        assert code == 0 and json.loads(out)["text"] == text
    for text in (
        "a text with and/or in it",
        "folder",
        "it ends.",
        "one\ntwo/three.csv",
        "3.5",
        "/ /",
    ):
        code, out, _ = run("predict", str(classifier), text)
        assert code == 0 and json.loads(out)["text"] == text
    code, out, _ = run("predict", str(classifier), '{"text":"a/b"}')
    assert code == 0 and json.loads(out)["text"] == "a/b"


def test_standard_input_in_another_encoding_names_its_line(run: Run, classifier: Path) -> None:
    code, out, err = run("predict", str(classifier), stdin=b"fine\ncaf\xe9\n")
    assert (
        code == 2
        and "standard input, line 2: byte 0xe9 at position 4 of the line is not UTF-8" in err
        and "iconv" in err
    )
    code, out, _ = run("predict", str(classifier), stdin="\ufeffé\r\n".encode())
    assert code == 0 and json.loads(out)["text"] == "é"


def test_half_characters_are_answered_as_replacement_characters(run: Run, classifier: Path) -> None:
    code, out, _ = run("predict", str(classifier), r'{"text": "a \ud800"}')
    assert code == 0 and json.loads(out)["text"] == "a \ufffd"
    predictor = Predictor(classifier)
    assert len(predictor.answers(["\ud800", ("caf\udce9", "b"), {"text": "\udfff"}])) == 3


def test_results_are_json_whatever_the_terminal_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    for encoding, shown in (("utf-8", '"é😀"'), ("latin-1", r'"\u00e9\ud83d\ude00"')):
        monkeypatch.setattr(
            json_lines.sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        )
        assert json_line("é😀") == shown
    for number in (math.nan, math.inf):
        with pytest.raises(RunError, match="not finite"):
            json_line({"score": number})


def test_words_of_an_error_are_short() -> None:
    words = last_resort.unforeseen_words(ValueError("long " * 1000), None)
    assert len(words) < 500 and re.match(r"unexpected error \(ValueError: long long", words)
