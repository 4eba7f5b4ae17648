"""What a graph server sends again to one that takes a lost server's place: rows, and gradients."""

from collections.abc import Iterator

from siafu.pipeline.events import GradientArrived, RowsArrived
from siafu.pipeline.ids import Epoch, ServerId
from siafu.pipeline.setup import Setup
from siafu.pipeline.track import Track


def rows_again(setup: Setup, track: Track, epoch: Epoch, server: ServerId) -> Iterator[RowsArrived]:
    """Rows of `epoch` that this server has made and that another one reads."""
    for stage, interval in track.made(epoch):
        if server in setup.layout.readers(track.schedule[stage], interval):
            yield RowsArrived(track.lane, epoch, stage, interval)


def gradients_again(setup: Setup, track: Track, epoch: Epoch, home: ServerId) -> Iterator[GradientArrived]:
    """Gradients of `epoch` that this server has made, for the parameters of one home."""
    for stage in track.schedule.stages:
        for phase in stage.gradients:
            if setup.homes[phase] == home:
                for interval in track.intervals:
                    if track.has_passed(epoch, stage.id, interval):
                        yield GradientArrived(epoch, phase, interval)
