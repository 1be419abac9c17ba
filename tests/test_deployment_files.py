"""The unit and the container of the service."""

from __future__ import annotations

import configparser
import importlib
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from tasklm.cli.app import app
from tests.test_release_files import LOCKS, ROOT, text_of


def options_of_serve() -> set[str]:
    commands: Any = get_command(app)
    return {
        name
        for parameter in commands.commands["serve"].params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }


def check_command(words: list[str]) -> None:
    """Checks a command that serves against the options that there are."""
    assert Path(words[0]).name == "tasklm" and words[1] == "serve" and words[2].startswith("/")
    assert {word for word in words if word.startswith("--")} <= options_of_serve()


def test_the_unit_runs_the_service_without_rights() -> None:
    unit = configparser.RawConfigParser(strict=False, comment_prefixes="#", delimiters="=")
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(text_of("deploy/tasklm-serve.service"))
    service = unit["Service"]
    check_command(shlex.split(service["ExecStart"]))
    assert (
        int(service["TimeoutStopSec"]) > importlib.import_module("tasklm.serve.server").END_SECONDS
    )
    assert int(service["LimitNOFILE"]) > importlib.import_module("tasklm.serve.connections").MOST
    for name in (
        "DynamicUser",
        "NoNewPrivileges",
        "PrivateTmp",
        "ProtectHome",
        "PrivateDevices",
        "RestrictNamespaces",
    ):
        assert service[name] == "yes", name
    assert service["ProtectSystem"] == "strict" and service["CapabilityBoundingSet"] == ""
    assert (
        "NUMBA_CACHE_DIR=%C/tasklm" in service["Environment"]
        and service["CacheDirectory"] == "tasklm"
    )


def test_systemd_takes_every_line_of_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here: THE UNIT IS NOT VERIFIED")
    unit = tmp_path / "tasklm-serve.service"

    def complaints(text: str) -> str:
        unit.write_text(
            text.replace("/opt/tasklm/bin/tasklm", shutil.which("true") or ""), encoding="utf-8"
        )
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(unit)],
            capture_output=True,
            text=True,
            check=False,
        )
        return "\n".join(line for line in done.stderr.splitlines() if unit.name in line)

    text = text_of("deploy/tasklm-serve.service")
    assert complaints(text) == ""
    assert "ProtectClocks" in complaints(
        text.replace("ProtectClock=", "ProtectClocks=")
    )  # it does look


def test_the_container_runs_the_service_without_rights_and_finds_what_it_copies() -> None:
    text = text_of("deploy/Containerfile").replace("\\\n", " ")
    stages = [stage.splitlines() for stage in text.split("\nFROM ")[1:]]
    lines = [line.split(maxsplit=1) for line in stages[-1][1:] if line and not line.startswith("#")]
    last = {words[0]: words[1] for words in lines}
    check_command(json.loads(last["ENTRYPOINT"]))
    assert (
        int(last["USER"].split(":")[0]) > 0
        and "NUMBA_CACHE_DIR=/tmp" in last["ENV"]
        and last["STOPSIGNAL"] == "SIGTERM"
    )
    allowed = [
        line[1:]
        for line in text_of("deploy/Containerfile.containerignore").splitlines()
        if line.startswith("!")
    ]
    copied = [
        word
        for stage in stages
        for line in stage
        if line.startswith("COPY ")
        for word in line.split()[1:-1]
    ]
    for source in [word for word in copied if not word.startswith(("--", "/"))]:
        assert (ROOT / source).exists() and any(
            Path(source).match(pattern) for pattern in allowed
        ), source
    for name in re.findall(r"requirements[\w-]*\.lock", text):
        assert name in LOCKS
