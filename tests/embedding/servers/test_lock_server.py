import pytest

from siafu.embedding.servers.kept_versions import KeptVersions
from siafu.embedding.servers.lock_events import (
    AbandonLease,
    AcceptLease,
    CopyPartition,
    EpochBegins,
    EpochEnds,
    KeeperGone,
    KeeperReplaced,
    PartitionLost,
    StateTrained,
    TrainState,
)
from siafu.embedding.servers.lock_server import LockServer
from tests.embedding.servers.schedules import Schedule, asks

BATCHES = 10


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(BATCHES))
def test_in_every_schedule_each_state_goes_into_its_partitions_once(batch):
    ended = 0
    for seed in range(1000 * batch, 1000 * batch + 1000):
        schedule = Schedule(seed, kills=seed % 4)
        schedule.run()
        if schedule.ended:
            ended += 1
            schedule.check()
    assert ended > 600  # others lost both that held a partition at once


def test_without_losses_nothing_is_trained_twice():
    schedule = Schedule(1, kills=0)
    schedule.run()
    schedule.check()
    assert set(schedule.trained.values()) == {1}


def _two_servers():
    lock = LockServer(2, [(0, 1)] * 4)
    lock.handle(EpochBegins(((0, 1), (1, 2), (2, 3))))
    return lock


def _kept(order):
    return tuple((source.partition, *keeper) for source in order.sources for keeper in source.keepers)


def test_servers_get_states_that_share_no_partition():
    lock = _two_servers()
    (first,), (second,) = lock.handle(asks(0)), lock.handle(asks(1))
    assert (first.state, second.state) == (0, 2)
    assert lock.handle(StateTrained((1, 1), second.lease, _kept(second))) == [AcceptLease(second.lease)]


def test_a_lost_servers_state_is_handed_out_again_and_no_other():
    lock = _two_servers()
    (first,), (second,) = lock.handle(asks(0)), lock.handle(asks(1))
    told = lock.handle(KeeperGone(0))
    assert told[0] == AbandonLease(first.lease)
    orders = [
        each
        for each in lock.handle(StateTrained((1, 1), second.lease, _kept(second)))
        if isinstance(each, TrainState)
    ]
    assert [order.state for order in orders] == [0]


def test_what_a_lost_server_says_late_is_ignored():
    lock = _two_servers()
    (first,) = lock.handle(asks(0))
    lock.handle(KeeperGone(0))
    assert lock.handle(StateTrained((0, 1), first.lease, _kept(first))) == []
    lock.handle(KeeperReplaced((0, 2)))
    assert lock.handle(asks(0, life=1)) == []


def test_a_replacement_reads_what_its_predecessor_kept():
    lock = _two_servers()
    lock.handle(KeeperGone(0))
    told = lock.handle(KeeperReplaced((0, 2)))
    assert told == [CopyPartition((0, 2), partition, 0, 1, 0) for partition in range(4)]


def test_a_partition_that_nobody_holds_is_told():
    lock = LockServer(2, [(0, 1)])
    lock.handle(KeeperGone(0))
    assert lock.handle(KeeperGone(1)) == [PartitionLost(0)]


def test_an_epoch_ends_once():
    lock = LockServer(1, [(0,), (0,)])
    lock.handle(EpochBegins(((0, 1),)))
    (order,) = lock.handle(asks(0))
    done = StateTrained((0, 1), order.lease, _kept(order))
    assert lock.handle(done) == [AcceptLease(order.lease), EpochEnds()]
    assert lock.handle(done) == []


def test_a_keeper_never_overwrites_the_version_that_counts():
    kept = KeptVersions((7,))
    kept.fill(7, 0, 3)
    assert kept.place_for_trained(7, 5, base=3) == 1
    kept.fill(7, 1, 5)  # its lease is abandoned
    assert kept.place_for_trained(7, 6, base=3) == 1
    kept.fill(7, 1, 6)
    assert kept.place_for_trained(7, 5, base=3) is None  # it comes late
    assert kept.place_for_copy(7, 2) is None
    assert (kept.find(7, 3), kept.find(7, 6)) == (0, 1)
