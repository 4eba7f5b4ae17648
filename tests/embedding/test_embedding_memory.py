"""Memory that embeddings take, foretold and kept."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from siafu.embedding.disk.bucket_orders import count_swaps, order_sizes, random_order
from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.embedding_memory import _largest_buffer, disk_bytes, disk_list, on_disk, read_share
from siafu.graph.triples import Triples

_RUN = """
import sys, threading, numpy as np, siafu
from siafu.base.hardware.memory import own_bytes
rows = np.random.default_rng(0).integers(0, 400_000, (20_000, 3)).astype(np.int32)
rows[:, 1] = 0
triples = siafu.Triples.from_arrays(rows[400:], rows[:200], rows[200:400], num_entities=400_000)
options = dict(dim=100, epochs=1, candidates=1000, out=sys.argv[1])
peak, done = 0, threading.Event()
def watch():
    global peak
    while not done.wait(0.002):
        peak = max(peak, own_bytes())
thread = threading.Thread(target=watch)
thread.start()
run = siafu.embed(triples, memory=sys.argv[2], **options)
done.set(); thread.join()
print(peak, run.config["training"]["partitions"])
"""


def planned(entities: int, count: int) -> Triples:
    """As many triples that do not exist."""
    row = np.zeros((1, 3), np.int32)
    return Triples(np.broadcast_to(row, (count, 3)), row[:0], row[:0], entities, 10)


@pytest.mark.parametrize("budget", [1.2e9, 4e9])
def test_partitions_are_those_whose_largest_buffer_reads_least(budget: float) -> None:
    triples, options = planned(10_000_000, 10_000_000), EmbedOptions(dim=100)
    chosen = on_disk(triples, options, int(budget))
    assert chosen is not None
    assert disk_bytes(triples, chosen) <= budget
    largest = [_largest_buffer(triples, options, each, int(budget), None) for each in (8, 16, 32, 64)]
    assert read_share(chosen) == min(read_share(each) for each in largest if each is not None)


def test_sizes_of_an_order_are_the_largest_of_its_draws() -> None:
    drawn = [random_order(8, 3, np.random.default_rng(seed)) for seed in range(3)]
    sizes = order_sizes("random", 8, 3)
    assert sizes.reads == max(3 + count_swaps(states) for states in drawn)
    assert sizes.buckets == max(len(state.buckets) for states in drawn for state in states)


def test_the_list_names_what_memory_is_for() -> None:
    options = EmbedOptions(dim=100, partitions=16, buffer=4)
    listed = disk_list(planned(10_000_000, 100_000_000), options)
    assert listed["partitions in memory"] == pytest.approx(6 / 16 * 8e9, rel=0.01)
    assert "triples of a state" in listed
    assert "evaluation" not in listed


@pytest.mark.slow
def test_a_run_on_disk_takes_no_more_than_its_memory(tmp_path: Path) -> None:
    child = [sys.executable, "-c", _RUN, str(tmp_path / "run"), "600MB"]
    ended = subprocess.run(child, capture_output=True, text=True, env={**os.environ, "SIAFU_THREADS": "2"})
    assert ended.returncode == 0, ended.stderr
    peak, partitions = ended.stdout.split()
    assert partitions != "None"
    assert int(peak) <= 600e6
