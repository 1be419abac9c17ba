"""The counters of the service, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Requests by path and status, their seconds, sizes of batches, texts answered and waiting."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "tasklm_requests", "Requests answered.", ["path", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "tasklm_request_seconds",
            "Time to answer a request.",
            ["path"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self._batches = Histogram(
            "tasklm_batch_inputs", "Inputs per model batch.", buckets=SIZES, registry=self.registry
        )
        self._answered = Counter(
            "tasklm_inputs_answered", "Inputs answered by the model.", registry=self.registry
        )
        self._waiting = Gauge(
            "tasklm_inputs_waiting", "Inputs waiting for the model.", registry=self.registry
        )

    def request(self, path: str, status: int, seconds: float) -> None:
        """Counts an answered request."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def batch(self, inputs: int) -> None:
        """Counts a batch that the model has answered."""
        self._batches.observe(inputs)
        self._answered.inc(inputs)

    def watch(self, waiting: Callable[[], float]) -> None:
        """Sets the function that counts the waiting inputs."""
        self._waiting.set_function(waiting)

    def text(self) -> bytes:
        """All counters in Prometheus' text format."""
        return generate_latest(self.registry)
