"""Free memory: the machine's, or less where a container has less."""

from pathlib import Path

import pytest

from siafu.base.errors import BadInput
from siafu.base.hardware import memory

GB = 10**9


def system(root: Path, files: dict[str, object]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return root


MACHINE = {"proc/meminfo": f"MemTotal: 9000000 kB\nMemAvailable: {8 * GB // 1024} kB"}


def test_without_limits_it_is_what_the_machine_has(tmp_path: Path) -> None:
    assert memory.free_bytes(system(tmp_path, MACHINE)) == 8 * GB // 1024 * 1024


def test_a_system_that_does_not_say_is_unknown(tmp_path: Path) -> None:
    assert memory.free_bytes(tmp_path) is None


def test_here_it_is_no_more_than_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(memory.LIMIT, raising=False)
    free, total = memory.free_bytes(), memory.memory_bytes()[0]
    assert free is None or total is None or 0 < free <= total


@pytest.mark.parametrize("group", ["/", "/outer/inner", "/not/seen/in/here"])
def test_a_container_has_what_its_limit_leaves(tmp_path: Path, group: str) -> None:
    found = {
        "proc/self/cgroup": f"0::{group}",
        "sys/fs/cgroup/memory.max": 3 * GB,
        "sys/fs/cgroup/memory.current": 2 * GB,
        "sys/fs/cgroup/memory.stat": f"anon 5\ninactive_file {GB // 2}\nactive_file {GB // 4}",
    }
    assert memory.free_bytes(system(tmp_path, MACHINE | found)) == GB + GB // 2 + GB // 4


def test_the_tightest_of_nested_limits_counts(tmp_path: Path) -> None:
    found = {
        "proc/self/cgroup": "0::/a/b",
        "sys/fs/cgroup/a/memory.max": 2 * GB,
        "sys/fs/cgroup/a/memory.current": GB,
        "sys/fs/cgroup/a/b/memory.max": "max",
        "sys/fs/cgroup/a/b/memory.current": GB,
    }
    assert memory.free_bytes(system(tmp_path, MACHINE | found)) == GB


def test_an_older_kind_of_limit_counts_too(tmp_path: Path) -> None:
    found = {
        "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/job",
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": 2 * GB,
        "sys/fs/cgroup/memory/job/memory.usage_in_bytes": GB,
        "sys/fs/cgroup/memory/job/memory.stat": f"total_inactive_file {GB // 2}",
    }
    assert memory.free_bytes(system(tmp_path, MACHINE | found)) == GB + GB // 2


def test_no_limit_is_no_limit(tmp_path: Path) -> None:
    found = {"proc/self/cgroup": "4:memory:/", "sys/fs/cgroup/memory/memory.limit_in_bytes": 2**63 - 4096}
    assert memory.free_bytes(system(tmp_path, MACHINE | found)) == 8 * GB // 1024 * 1024


def test_the_user_may_say_what_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(memory.LIMIT, "64GB")
    assert memory.free_bytes(system(tmp_path, MACHINE)) == 64 * GB
    monkeypatch.setenv(memory.LIMIT, "off")
    assert memory.free_bytes(system(tmp_path, MACHINE)) is None
    monkeypatch.setenv(memory.LIMIT, "plenty")
    with pytest.raises(BadInput, match=r"SIAFU_MEMORY_LIMIT.*plenty"):
        memory.free_bytes(system(tmp_path, MACHINE))
