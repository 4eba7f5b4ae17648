from threading import Lock

import numpy as np

from siafu.embedding.servers.lock_events import Lease
from siafu.embedding.servers.relation_changes import RelationCopy, RelationLedger, relation_tables
from siafu.embedding.steps.row_updates import RowOptimizer


def _relations():
    relations = RowOptimizer.of("adagrad", np.ones((3, 2), np.float32), 0.1)
    relations.moments[0][:] = 2
    return relations


def _change(value):
    return {"relations": np.full((3, 2), value, np.float32), "moment0": np.full((3, 2), value, np.float32)}


def test_changes_of_all_leases_add_up_and_each_counts_once():
    ledger = RelationLedger(_relations())
    for lease in (1, 2):
        ledger.begin(Lease(lease))
    ledger.add(Lease(1), 1, _change(0.5))
    ledger.add(Lease(1), 1, _change(0.5))  # it came twice
    ledger.add(Lease(2), 1, _change(0.25))
    assert np.all(ledger.relations.table == 1.75)
    assert np.all(ledger.relations.moments[0] == 2.75)


def test_changes_of_an_abandoned_lease_are_taken_back_and_late_ones_are_void():
    ledger = RelationLedger(_relations())
    for lease in (1, 2):
        ledger.begin(Lease(lease))
        ledger.add(Lease(lease), 1, _change(0.5))
    ledger.accept(Lease(1))
    ledger.abandon(Lease(2))
    ledger.add(Lease(2), 2, _change(0.5))
    assert np.all(ledger.relations.table == 1.5)
    assert np.all(ledger.relations.moments[0] == 2.5)


def test_a_copy_keeps_what_changed_while_the_answer_was_on_its_way():
    relations = _relations()
    copy = RelationCopy(relations, Lock())
    relations.table += 1
    assert np.all(copy.changes()["relations"] == 1)
    relations.table += 2  # by a batch under way
    now = {name: table.copy() for name, table in relation_tables(_relations()).items()}
    now["relations"][:] = 10
    copy.refresh(now)
    assert np.all(relations.table == 12)
    assert np.all(copy.changes()["relations"] == 2)
