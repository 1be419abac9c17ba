"""Starts one phase of one engine as a process of its own, held to some cores and to the memory that
is free.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from bm25_peers.text import DataSet
from tasklm.errors import RunError

_MEMORY_SHARE = 0.85  # of the free memory; an engine that wants more fails instead of the machine
_JAVA_HEAP = "2g"
_HERE = Path(__file__).parent


class Failed(Exception):
    """A phase ended without a report; the text says with which words."""


def run_phase(spec: dict[str, Any], cores: int) -> dict[str, Any]:
    """The report of a phase that a Python worker does."""
    scratch = Path(spec["scratch"])
    spec_file, report = scratch / "spec.json", scratch / "report.json"
    spec_file.write_text(json.dumps(spec), encoding="utf-8")
    return _run(
        [sys.executable, "-m", "bm25_peers.worker", str(spec_file), str(report)], report, cores
    )


class Lucene:
    """Lucene by a small Java program, compiled against the jars that were named."""

    def __init__(self, jars: str, work: Path) -> None:
        self.classes = work / "lucene-classes"
        for program in ("java", "javac"):
            if shutil.which(program) is None:
                raise RunError(
                    f"Lucene needs {program}, which is not on the "
                    f"path. Install a JDK, or leave lucene out of --engines."
                )
        compiled = subprocess.run(
            ["javac", "-cp", jars, "-d", str(self.classes), str(_HERE / "LuceneSearch.java")],
            capture_output=True,
            text=True,
            check=False,
        )
        if compiled.returncode:
            raise RunError(
                f"the Java program does not compile against the "
                f"jars of --lucene: {compiled.stderr.strip()[:500]}"
            )
        self.path = os.pathsep.join([jars, str(self.classes)])

    def build(self, spec: dict[str, Any], data: DataSet, cores: int) -> dict[str, Any]:
        """The report of building."""
        return self._java(spec, ["build", str(data.text), spec["index"]], [], cores)

    def search(self, spec: dict[str, Any], data: DataSet, cores: int) -> dict[str, Any]:
        """The report of searching."""
        runs = [
            argument
            for length in spec["lengths"]
            for k in spec["ks"]
            for argument in (
                str(data.query_file(length)),
                str(length),
                str(k),
                str(Path(spec["found"]) / f"lucene-{length}-{k}.bin"),
            )
        ]
        return self._java(
            spec,
            ["search", spec["index"]],
            [str(spec["cpu_limit"]), str(spec["sample"]), *runs],
            cores,
        )

    def _java(
        self, spec: dict[str, Any], before: list[str], after: list[str], cores: int
    ) -> dict[str, Any]:
        report = Path(spec["scratch"]) / "report.json"
        java = ["java", f"-Xmx{_JAVA_HEAP}", "-cp", self.path, "LuceneSearch"]
        return _run([*java, *before, str(report), *after], report, cores)


def _run(command: list[str], report: Path, cores: int) -> dict[str, Any]:
    report.unlink(missing_ok=True)
    paths = [str(_HERE.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    hold = functools.partial(_hold, sorted(os.sched_getaffinity(0))[-cores:], _free_memory())
    done = subprocess.run(
        command, env=environment, preexec_fn=hold, capture_output=True, text=True, check=False
    )
    if done.returncode or not report.exists():
        said = [line for line in done.stderr.strip().splitlines() if line.strip()]
        raise Failed(said[-1][:200] if said else f"ended with status {done.returncode}")
    value: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return value


def _hold(cores: list[int], memory: int) -> None:
    os.sched_setaffinity(0, cores)
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


def _free_memory() -> int:
    lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    return int(_MEMORY_SHARE * free)
