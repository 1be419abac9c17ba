"""The commands of the pages that go on until they are stopped are started, asked and stopped; so
are the requests by curl.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.docs.blocks import PAGES, ROOT, blocks, commands, is_shell
from tests.docs.page_files import provide

SEVERAL = "runs/many"  # the run whose model has several tasks
SERVING = ("serve", "watch")  # verbs that end when they are told to
WORDS = [
    command.words
    for page in PAGES
    for block in blocks(page)
    if is_shell(block)
    for command in commands(block)
]


def without_port(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words without `--port N`: tests take a free one."""
    at = words.index("--port") if "--port" in words else len(words)
    return words[:at] + words[at + 2 :]


SERVICES = sorted(
    {without_port(words[1:]) for words in WORDS if words[0] == "tasklm" and words[1] in SERVING}
)


@dataclass
class Asked:
    """What a command of curl asks for."""

    address: str = ""
    method: str = "GET"
    headers: dict[str, str] = field(default_factory=dict)
    data: bytes | None = None


def parsed(words: tuple[str, ...]) -> Asked:
    """The request of a command of curl; of its options those that the pages use are known."""
    found, rest = Asked(), list(words[1:])
    while rest:
        word = rest.pop(0)
        if word in ("-d", "--data"):
            found.data = rest.pop(0).encode()
            found.method = "POST"
        elif word in ("-H", "--header"):
            name, _, value = rest.pop(0).partition(":")
            found.headers[name] = value.strip()
        elif word in ("-X", "--request"):
            found.method = rest.pop(0)
        elif word not in ("-s", "--silent"):
            assert not word.startswith("-") and not found.address, (
                f"curl: do not know what to do with {word}"
            )
            found.address = word if "://" in word else f"http://{word}"
    return found


@contextmanager
def started(words: tuple[str, ...], folder: Path) -> Iterator[str]:
    """Runs `tasklm WORDS` on a free port, gives its address, and stops it as a person or a machine
    would: it must end well.
    """
    engine = (
        ["--engine", "torch"] if words[0] == "serve" else []
    )  # ready sooner; tests/serve/test_service_engines.py has the others
    command = [sys.executable, "-m", "tasklm", *words, "--port", "0", *engine]
    paths = os.pathsep.join([str(ROOT / "src"), *sys.path])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if found := re.search(
                r"(?:listening on|watching .* at) (http://127\.0\.0\.1:\d+)", line
            ):
                break
        else:
            raise AssertionError("".join(lines))
        yield found[1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("words", SERVICES, ids=" ".join)
def test_services_start_answer_and_end(
    words: tuple[str, ...],
    scratch_with_run: Path,
    finished: Path,
    run_cli: Callable[[list[str]], str],
) -> None:
    for package in (
        ("fastapi", "uvicorn", "httptools", "prometheus_client") if words[0] == "serve" else ()
    ):
        pytest.importorskip(
            package, reason=f"tasklm serve needs {package}, which is not installed here: NOT RUN"
        )
    provide(list(words), finished, run_cli)
    with started(words, scratch_with_run) as address:
        with urlopen(f"{address}/") as page:
            assert page.status == 200 and page.headers.get_content_type() == "text/html"
        if words[0] != "serve":
            return
        # addresses such as /predict/NAME are those of several tasks
        of_several = any(SEVERAL in word for word in words)
        every = [parsed(line) for line in WORDS if line[0] == "curl"]
        requests = [one for one in every if (one.address.count("/") > 3) == of_several]
        assert {request.address.split("/")[3] for request in requests} >= {"predict", "explain"}
        for asked in requests:
            here = re.sub(r"^http://(localhost|127\.0\.0\.1):8000", address, asked.address)
            with urlopen(
                Request(here, asked.data, asked.headers, method=asked.method)
            ) as answer:  # raises where it is not 2xx
                assert json.load(answer), asked


def test_commands_of_curl_are_read() -> None:
    words = (
        "curl",
        "-s",
        "localhost:8000/predict",
        "-H",
        "Content-Type: application/json",
        "-d",
        '{"inputs": ["a"]}',
    )
    assert parsed(words) == Asked(
        "http://localhost:8000/predict",
        "POST",
        {"Content-Type": "application/json"},
        b'{"inputs": ["a"]}',
    )
    with pytest.raises(AssertionError, match="--insecure"):
        parsed(("curl", "--insecure", "localhost:8000/"))
