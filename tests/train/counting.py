"""A machine that compiles with a backend that counts its graphs."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from tasklm.device.machine import Machine


class Counting(Machine):
    """Compiles as training does; `graphs` are those of all functions, until cleared."""

    graphs: ClassVar[list[object]] = []

    def compiled(self, function: Any, graphs: bool) -> Any:
        """The function, compiled for one shape of its inputs."""

        def counting(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
            self.graphs.append(graph)
            return graph.forward

        return torch.compile(function, fullgraph=True, dynamic=False, backend=counting)
