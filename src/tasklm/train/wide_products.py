"""A pass over compiled graphs: products of 16-bit matrices that leave a graph in 32 bits, as gradients of weights do, are made so at once.

A GPU adds them up in 32 bits anyway: rounding them to 16 costs accuracy, and making them 32 again a kernel for each.
"""

from __future__ import annotations

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.fx import Graph, Node

_AS = torch.ops.prims.convert_element_type.default
_PRODUCT = torch.ops.aten.mm.default
_WIDE_PRODUCT = torch.ops.aten.mm.dtype


class WideProducts(CustomGraphPass):
    """What torch.compile takes as the option `post_grad_custom_post_pass`."""

    def __call__(self, graph: Graph) -> None:
        """Changes the graph of a device that has such products."""
        for node in graph.find_nodes(op="call_function", target=_AS):
            product = node.args[0]
            if isinstance(product, Node) and _is_narrow(product) and len(product.users) == 1 and _leaves_in_32_bits(node):
                with graph.inserting_before(node):
                    wide = graph.call_function(_WIDE_PRODUCT, (*product.args, torch.float32))
                wide.meta.update(node.meta)
                node.replace_all_uses_with(wide)
                graph.erase_node(node)
                graph.erase_node(product)

    def uuid(self) -> object:
        """Returns what tells this pass from others in caches of compiled code."""
        return get_hash_for_files((__file__,))


def _is_narrow(node: Node) -> bool:
    return node.target is _PRODUCT and node.meta["val"].dtype in (torch.bfloat16, torch.float16)


def _leaves_in_32_bits(node: Node) -> bool:
    return node.meta["val"].dtype == torch.float32 and all(user.op == "output" for user in node.users)
