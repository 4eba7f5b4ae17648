"""Machines with a fault that nobody sees from outside: only `validate` can catch it."""

from siafu.pipeline.graph_basis import VersionPin
from siafu.pipeline.graph_server import GraphServer
from siafu.pipeline.run_machine.run import RunMachine
from siafu.pipeline.weight_server import WeightServer
from tests.checker.planted_faults import fault


@fault()
class WhatNobodyOwesIsKeptForEver(GraphServer):
    """what nobody owes any more is kept for ever"""

    def _gradient_taken(self, event, out):
        key = (event.interval, event.epoch)
        held = self._pins.get(key)
        super()._gradient_taken(event, out)
        if held is not None and key not in self._pins:
            self._pins[key] = VersionPin(held.weights, set())


@fault()
class ASettledServerDoesNotForgetThatItSettled(WeightServer):
    """a weight server that has settled says so again with every version"""

    def _try_settled(self, out):
        settling = self._settling
        super()._try_settled(out)
        self._settling = settling


@fault()
class MeasuresOfRecordedEpochsAreKept(RunMachine):
    """a run keeps the measures of epochs that are recorded"""

    def _record(self, out):
        kept = dict(self._records._training)
        super()._record(out)
        self._records._training |= kept


WITHIN = [
    each.__doc__
    for each in (
        WhatNobodyOwesIsKeptForEver,
        ASettledServerDoesNotForgetThatItSettled,
        MeasuresOfRecordedEpochsAreKept,
    )
]
