"""RunSizes: the arrays of a training's servers on any machine: of a graph that is there, and of one that is only a shape.

The list is the one that `siafu train` and `siafu explain` make (`server/memory/listing.py`); only sizes are looked at here, so a shape is as good
as a graph.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from siafu.graph import Graph
from siafu.graph.csr import id_dtype
from siafu.graph.partition import Partition
from siafu.graph.partition.partition import owner_dtype
from siafu.graph.stores.content import SPLITS
from siafu.options import Options
from siafu.pipeline.ids import LaneName, Mode
from siafu.server.costs.extent import Extent
from siafu.server.layout.layouts import VERTICES
from siafu.server.memory.listing import RunListing, held_bytes
from siafu.server.memory.needed_rows import NeededRows
from siafu.server.memory.server_hardware import ServerHardware
from siafu.server.memory.server_part import ServerPart, whole_part
from siafu.server.plan import ServerPlan, interval_counts_of
from siafu.virtual.graph_shape import GraphShape
from siafu.virtual.workload import ModelShape, edgeless, extents_of

_LIKE_ONE = np.array([1.0, 0.0], np.float32)  # bytes of a number that no type takes for zero

Lanes = tuple[Mapping[LaneName, NeededRows], Mapping[LaneName, Extent]]


@dataclass(frozen=True, slots=True, eq=False)
class RunSizes:
    """A training whose servers' arrays can be listed.

    plan:   on one server
    shape:  of its graph, which says how many ghosts servers have
    parts:  of servers, where partitions were counted, by the number of servers; others are modelled, all alike
    """

    plan: ServerPlan
    shape: GraphShape
    parts: Mapping[int, Sequence[ServerPart]]
    _lanes: dict[bool, Lanes] = field(default_factory=dict, repr=False)

    @classmethod
    def of_shape(cls, model: ModelShape, shape: GraphShape) -> "RunSizes":
        """Of a graph that is not there: as if it were a store, undirected, with features that are not zero."""
        tiny, graph = edgeless(shape.features, shape.classes), _stand_in(shape)
        built = model.build(shape.features, shape.classes)
        plan = ServerPlan.of(tiny, built, Options(), Partition.whole(tiny.num_vertices))
        plan = replace(plan, graph=graph, splits=dict.fromkeys(SPLITS, torch.zeros(0)), focus=None)
        numbers = {name: each.numel() for name, each in plan.weights.items()}
        needs: dict[LaneName, NeededRows] = {
            "train": NeededRows.planned(shape.vertices, shape.train, shape.train_edges),
            "evaluate": NeededRows.planned(shape.vertices, shape.labelled, shape.labelled),
        }
        lanes = needs, extents_of(plan.programs, numbers, shape)
        return cls(plan, shape, {}, {True: lanes, False: lanes})

    @classmethod
    def of_graph(
        cls,
        graph: Graph,
        model: ModelShape,
        shape: GraphShape,
        parts: Mapping[int, Sequence[ServerPart]] | None = None,
    ) -> "RunSizes":
        """Of a graph that is there, in the order in which it is trained on."""
        walked = graph.layout or graph
        built = model.build(graph.num_features, graph.num_classes)
        plan = ServerPlan.of(walked, built, Options(), Partition.whole(walked.num_vertices))
        return cls(plan, shape, parts or {})

    def listings(
        self,
        servers: int,
        hardware: ServerHardware,
        program_bytes: int,
        *,
        mode: Mode = "pipe",
        layout: str = VERTICES,
        evaluate_every: int = 1,
        on_lambdas: bool = False,
    ) -> list[RunListing]:
        """Arrays of each server in a process of its own, on such machines; of servers that are alike only one's.

        program_bytes: of a process before it has any data
        """
        graph, alone = self.plan.graph, servers == 1
        owner = np.broadcast_to(owner_dtype(servers)(0), graph.num_vertices)
        partition, focus = Partition("planned", servers, owner), self.plan.focus if alone else None
        options = replace(self.plan.options, mode=mode, servers=servers, evaluate_every=evaluate_every)
        plan = replace(
            self.plan,
            partition=partition,
            options=options,
            focus=focus,
            interval_counts=interval_counts_of(graph, partition, options, focus, hardware.threads),
        )
        if layout != VERTICES:
            plan = plan.laid_out(layout)
        needs, extents = self._lanes_of(focused=alone)
        extents = {lane: replace(each, program=plan.programs[lane]) for lane, each in extents.items()}
        taken = program_bytes + held_bytes(graph)
        return [
            RunListing(plan, [part], needs, extents, taken, on_lambdas, hardware)
            for part in self._parts_of(servers)
        ]

    def _parts_of(self, servers: int) -> Sequence[ServerPart]:
        if servers == 1:
            return [whole_part(self.plan.graph)]
        if servers in self.parts:
            return self.parts[servers]
        shape, symmetric = self.shape, self.plan.graph.is_symmetric
        own, edges = -(-shape.vertices // servers), -(-shape.edges // servers)
        ghosts = round(shape.ghosts_of_server(servers))
        share = own / max(1, shape.vertices)
        return [ServerPart(own, share, edges, edges, ghosts, ghosts, alone=False, aligned=symmetric)]

    def _lanes_of(self, *, focused: bool) -> Lanes:
        if focused not in self._lanes:
            plan = self.plan if focused else replace(self.plan, focus=None)
            found = RunListing.of(plan, [], 0)
            self._lanes[focused] = found.needs, found.extents
        return self._lanes[focused]


def _stand_in(shape: GraphShape) -> Graph:
    """A graph of that shape without its content: each array is one number of a mapped file, seen as often as the array is long."""
    with tempfile.TemporaryFile() as file:
        file.write(_LIKE_ONE.tobytes())
        file.flush()
        number = np.memmap(file, np.uint8, mode="r", shape=(_LIKE_ONE.nbytes,))

    def seen(dtype: DTypeLike, *sizes: int) -> NDArray[Any]:
        one = number[: np.dtype(dtype).itemsize].view(dtype)
        return np.broadcast_to(one, sizes if len(sizes) == 1 else (sizes[0], sizes[1]))

    vertices, train = shape.vertices, round(shape.train * shape.vertices)
    others = max(0, round(shape.labelled * vertices) - train)
    graph = Graph(
        seen(np.int64, vertices + 1),
        seen(id_dtype(vertices), shape.edges),
        x=seen(np.float32, vertices, shape.features),
        y=seen(np.int64, vertices),
        train=seen(np.int64, train),
        val=seen(np.int64, others // 2),
        test=seen(np.int64, others - others // 2),
        num_classes=shape.classes,
        name="shape",
    )
    graph.__dict__["is_symmetric"] = True
    return graph
