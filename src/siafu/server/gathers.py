"""From a layer's gather to the one that runs it on a server."""

import torch

from siafu.base.errors import BadInput
from siafu.nn.gather import Gather, Max, Softmax, Sum
from siafu.server.attention_gather import AttentionGather
from siafu.server.edges import ServerEdges
from siafu.server.local_gather import LocalGather, Mask
from siafu.server.max_gather import MaxGather
from siafu.server.sum_gather import SumGather

__all__ = ["LocalGather", "local_gather"]


def local_gather(
    gather: Gather,
    server: ServerEdges,
    width: int,
    dtype: torch.dtype = torch.float32,
    *,
    needed: Mask | None = None,
    training: bool = True,
) -> LocalGather:
    """One graph phase on one server.

    width:    columns of the rows that are gathered, all heads together
    dtype:    float32 or float64: of the tensors that go in and come out, and of the sums
    needed:   [V] over all vertices of the graph: whether somebody will read what is gathered for them; None: all
    training: whether a backward pass follows; else nothing is kept for one
    """
    if isinstance(gather, Sum):
        return SumGather(gather, server, width, dtype, needed=needed, training=training)
    if isinstance(gather, Max):
        return MaxGather(gather, server, width, dtype, needed=needed, training=training)
    if isinstance(gather, Softmax):
        return AttentionGather(gather, server, width, dtype, needed=needed, training=training)
    raise BadInput(
        f"no server can run a gather of type {type(gather).__name__}: use Sum, Mean, GcnSum, Max or Softmax"
    )
