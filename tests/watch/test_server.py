"""The watch page is read-only, answers to this machine's names alone, shows four things and nothing
else of the disk.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tasklm.cli.app import app
from tasklm.errors import RunError
from tasklm.storage.files import locked
from tasklm.watch import server as watch_server
from tasklm.watch.plain import bar_text
from tasklm.watch.server import WatchServer
from tests.conftest import labelled, sentences, write_jsonl
from tests.end_to_end.conftest import QUICK
from tests.watch.growing_run import GrowingRun

ELSEWHERE = [
    "/recipe.toml",
    "/events.jsonl",
    "/../recipe.toml",
    "/%2e%2e/first/recipe.toml",
    "//etc/passwd",
    "/report.html/",
    "/page.html",
    "/state.json/../recipe.toml",
    "http://127.0.0.1/",
    "*",
    "/.lock",
]
EVIL = "<script>alert('x')</script> & \x00 \ud800"


@pytest.fixture
def run(tmp_path: Path) -> GrowingRun:
    return GrowingRun(tmp_path / "first")


@pytest.fixture
def server(run: GrowingRun) -> Iterator[WatchServer]:
    with WatchServer(run.folder) as server:
        threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()
        yield server
        server.shutdown()


def ask(
    server: WatchServer, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode("utf-8")
    connection.close()
    return answer.status, dict(answer.getheaders()), body


def raw(server: WatchServer, request: str) -> str:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection:
        connection.sendall(request.encode())
        return connection.recv(100).decode().split("\r\n")[0]


class Links(HTMLParser):
    """Collects what a page would fetch or lead to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [
            value or ""
            for name, value in attrs
            if name in ("src", "href", "action", "srcset", "data")
        ]


def test_four_things_are_served_and_the_report_when_there_is_one(
    run: GrowingRun, server: WatchServer
) -> None:
    assert ask(server, "/report.html")[0] == 404
    run.finish()
    kinds = {
        "/": "text/html",
        "/watch.js": "text/javascript",
        "/state.json": "application/json",
        "/report.html": "text/html",
    }
    for path, kind in kinds.items():
        status, headers, body = ask(server, path)
        assert (status, headers["Content-Type"]) == (200, f"{kind}; charset=utf-8")
        assert (
            headers["Cache-Control"] == "no-store"
            and headers["X-Content-Type-Options"] == "nosniff"
        )
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; ")
        assert ask(server, path, "HEAD")[::2] == (200, "")
        assert body
    assert json.loads(ask(server, "/state.json?again")[2])["name"] == "first"
    assert "the report" in ask(server, "/report.html")[2]


@pytest.mark.parametrize("path", ELSEWHERE)
def test_no_other_path_leads_anywhere(server: WatchServer, path: str) -> None:
    assert (
        raw(server, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") == "HTTP/1.1 404 Not Found"
    )


def test_nothing_can_be_sent_to_it(server: WatchServer) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert ask(server, "/state.json", method)[0] == 501


def test_only_this_machines_names_are_answered_to(server: WatchServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    for host in ("127.0.0.1", f"localhost:{server.server_port}", "LOCALHOST:9", "[::1]:80"):
        assert ask(server, "/state.json", Host=host)[0] == 200
    for host in (
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:80",
        "10.0.0.1",
        "",
        "localhost:80@evil.example",
    ):
        status, _, body = ask(server, "/state.json", Host=host)
        assert status == 421 and "first" not in body
    assert " 421 " in raw(server, "GET /state.json HTTP/1.1\r\n\r\n")
    assert " 421 " in raw(
        server, "GET /state.json HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"
    )


def test_the_page_fetches_nothing_from_elsewhere_and_its_style_is_the_one_allowed(
    server: WatchServer,
) -> None:
    _, headers, page = ask(server, "/")
    links = Links()
    links.feed(page)
    assert sorted(links.found) == ["data:,", "report.html", "watch.js"]
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in headers["Content-Security-Policy"]
    assert (
        "unsafe" not in headers["Content-Security-Policy"]
        and "url(" not in style
        and "@import" not in style
    )
    script = ask(server, "/watch.js")[2]
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?://(?!www\.w3\.org/2000/svg)",
        script,
    )


def test_without_scripts_the_page_says_the_same_in_words_and_escapes_them(
    run: GrowingRun, server: WatchServer
) -> None:
    with locked(run.folder), run.tracker.progress("stage 1", 200) as bar:
        run.tracker.event("message", text=EVIL.replace("\ud800", ""))
        run.point("stage 1", 86, lm=4.25)
        bar.at(86, "lm 4.250")
        page = ask(server, "/")[2]
    for words in (
        "Running.",
        "stage 1: 43% (lm 4.250)",
        "lm: 4.25",
        "check: now",
        "&lt;script&gt;alert(",
    ):
        assert words in page, words
    assert '<noscript><meta http-equiv="refresh" content="5"></noscript>' in page
    assert "<script>" not in page
    run.finish(EVIL.replace("\ud800", ""))
    page = ask(server, "/")[2]
    assert (
        "Finished." in page
        and "81.4 ± 0.9 [78.3, 82.0]" in page
        and 'href="report.html"' in page
        and "<script>" not in page
    )


def test_words_for_progress() -> None:
    bar = {
        "title": "search",
        "done": 5,
        "total": 20,
        "left": 75.0,
        "about": "about 1 min left",
        "note": "",
    }
    assert bar_text(bar) == "search: 25%, about 1 min left"
    assert bar_text({**bar, "total": None, "left": None, "about": "", "note": "n"}) == "search (n)"


def test_a_damaged_file_is_told(run: GrowingRun, server: WatchServer) -> None:
    (run.folder / "scores.json").write_text("{", encoding="utf-8")
    status, _, body = ask(server, "/state.json")
    assert status == 500 and body.startswith("The run folder cannot be read: JSONDecodeError")


@pytest.mark.parametrize(
    "content", ["[1]", '{"time": 1, "bars": [[]]}', '{"time": 1, "bars": 3}', '{"bars": [{}]}', "{"]
)
def test_a_damaged_progress_file_is_told_to_the_page_and_not_to_the_terminal(
    run: GrowingRun, server: WatchServer, capfd: pytest.CaptureFixture[str], content: str
) -> None:
    with locked(run.folder):
        (run.folder / "progress.json").write_text(content, encoding="utf-8")
        for path in ("/state.json", "/"):
            status, _, body = ask(server, path)
            assert status == 500 and body.startswith("The run folder cannot be read: ")
    assert capfd.readouterr().err == ""


def test_a_browser_that_goes_away_in_the_middle_is_not_answered_again(
    server: WatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[HTTPStatus] = []

    def slow(_: watch_server.Answer, status: HTTPStatus, *others: Any) -> None:
        sent.append(status)
        raise TimeoutError

    monkeypatch.setattr(watch_server.Answer, "_send", slow)
    with pytest.raises(http.client.RemoteDisconnected):
        ask(server, "/state.json")
    assert sent == [HTTPStatus.OK]


def test_half_a_character_does_not_keep_the_page_from_being_shown(
    run: GrowingRun, server: WatchServer
) -> None:
    with (run.folder / "events.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"event": "message", "time": 1.0, "text": EVIL}) + "\n")
    status, _, body = ask(server, "/state.json")
    assert status == 200 and json.loads(body)["messages"][0]["text"] == EVIL.replace("\ud800", "?")
    status, _, page = ask(server, "/")
    assert status == 200 and "&lt;script&gt;alert(" in page and "<script>" not in page


def test_a_port_that_is_taken_is_named(run: GrowingRun, server: WatchServer) -> None:
    with pytest.raises(RunError, match=rf"port {server.server_port} cannot be used .*--port"):
        WatchServer(run.folder, server.server_port)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_verb_prints_its_address_and_ends_by_a_signal(
    run: GrowingRun, number: signal.Signals
) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "tasklm", "watch", str(run.folder)]
    before = signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # as scripts start what they leave in the background
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
    assert found, line
    connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=10)
    connection.request("GET", "/state.json")
    assert json.loads(connection.getresponse().read())["status"] == "waiting"
    process.send_signal(number)
    _, rest = process.communicate(timeout=30)
    connection.close()
    assert process.returncode == 0 and "Traceback" not in rest and "page stopped" in rest


def test_a_folder_that_holds_no_run_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["watch", str(tmp_path)])
    assert isinstance(result.exception, RunError) and "is not a run folder" in str(result.exception)


def test_fit_shows_itself_from_its_start_to_its_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers: list[WatchServer] = []

    class Noted(WatchServer):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            servers.append(self)

    monkeypatch.setattr(watch_server, "WatchServer", Noted)
    for name, count, seed in (("train", 96, 1), ("dev", 32, 2)):
        write_jsonl(tmp_path / f"{name}.jsonl", labelled(count, seed))
    write_jsonl(
        tmp_path / "corpus.jsonl", [{"text": " ".join(sentences(8, 100 + i))} for i in range(100)]
    )
    options = [
        word
        for key, value in {
            **QUICK,
            "train.steps": "12",
            "finetune.epochs": "2",
            "finetune.seeds": "1",
        }.items()
        for word in (f"--{key}", value)
    ]
    words = ["fit", f"{tmp_path}/train.jsonl"]
    for name, file in (("dev", "dev.jsonl"), ("corpus", "corpus.jsonl"), ("out", "run")):
        words += [f"--{name}", f"{tmp_path}/{file}"]
    seen: list[dict[str, Any]] = []

    def look() -> None:
        while not servers or not seen or seen[-1]["status"] != "finished":
            if servers:
                seen.append(json.loads(ask(servers[0], "/state.json")[2]))
            time.sleep(0.05)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    result = CliRunner().invoke(app, [*words, *options, "--watch"])
    assert result.exit_code == 0, result.exception
    looking.join(timeout=10)
    assert (
        seen[-1]["status"] == "finished"
        and seen[-1]["scores"]["rows"]
        and seen[-1]["report"] == "new"
    )
    running = [
        [step["state"] for step in state["flow"]] for state in seen if state["status"] == "running"
    ]
    places = list(
        dict.fromkeys(steps.index("now") for steps in running)
    )  # files written at one time may be read in the other order
    assert places == sorted(places) and len(places) > 2
    assert {group["title"] for group in seen[-1]["curves"]} == {"stage 1", "stage 2"}
    with pytest.raises(ConnectionRefusedError):
        ask(servers[0], "/state.json")
