"""What tests of plans share: the paper's four graphs, and the calibration that comes with Siafu."""

from functools import cache
from pathlib import Path

from siafu.cost.prices import price_book
from siafu.planning import calibration
from siafu.planning.calibration import Calibration
from siafu.planning.planner import Plan, make_plan
from siafu.planning.request import Request
from siafu.planning.shapes import shape_of
from siafu.virtual.graph_shape import GraphShape
from siafu.virtual.workload import ModelShape

# The paper's Table 1: the widths of its hidden layers.
HIDDEN = {"reddit-small": 128, "reddit-large": 128, "amazon": 64, "friendster": 48}
# The dearest, which is the naive choice; and one each with cheap cores, with a fast network and with much memory.
SOME = ("c5n.4xlarge", "c7g.2xlarge", "c7gn.2xlarge", "r5.2xlarge")
SMALL = GraphShape(200_000, 4_000_000, 64, 8, locality=0.5)


@cache
def reference() -> Calibration:
    """Plans of tests are made with it, so that they are the same on every machine."""
    return Calibration.read(Path(calibration.__file__).parent / "data" / "reference.json")


@cache
def paper_plan(name: str) -> Plan:
    """For one of the paper's graphs; with all types, `python bench/plans.py` shows the same."""
    found, shape = shape_of(name)
    request = Request(found, shape, ModelShape("gcn", HIDDEN[name], 2), instances=SOME)
    return make_plan(request, prices=price_book(), measured=reference())


def small_request(**changes: object) -> Request:
    """For a graph that fits anywhere, on two types of machines."""
    given = {"instances": ("c5.2xlarge", "c7g.2xlarge"), "most_servers": 4, "epochs": 20} | changes
    return Request("small", SMALL, ModelShape("gcn", 32, 2), **given)  # type: ignore[arg-type]


def small_plan(**changes: object) -> Plan:
    return make_plan(small_request(**changes), prices=price_book(), measured=reference())
