"""Version policies: what they allow, and that whoever obeys them holds no more versions than they say."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siafu.base.errors import BadInput
from siafu.weights.policy import POLICIES, VersionPolicy, policy


def test_an_unknown_policy_is_refused_with_the_choice() -> None:
    with pytest.raises(BadInput, match="unknown weight policy '3bw': choose one of stash, 2bw, flush"):
        policy("3bw")


def test_stash_updates_whatever_is_in_flight() -> None:
    assert policy("stash").may_update(7, [0, 3, 7])
    assert policy("stash").may_enter(update_due=True)
    assert policy("stash").max_versions is None


def test_2bw_updates_while_the_latest_version_is_in_flight() -> None:
    assert policy("2bw").may_update(4, [4, 4])


def test_2bw_waits_for_the_version_that_would_be_the_third() -> None:
    assert not policy("2bw").may_update(4, [4, 3])


def test_2bw_waits_for_an_older_version_even_if_nobody_holds_the_latest() -> None:
    """The gradient would come two updates late."""
    assert not policy("2bw").may_update(4, [3])


def test_2bw_lets_intervals_enter_while_an_update_is_due() -> None:
    assert policy("2bw").may_enter(update_due=True)


def test_flush_updates_only_when_nothing_is_in_flight() -> None:
    assert policy("flush").may_update(4, [])
    assert not policy("flush").may_update(4, [4])


def test_flush_lets_nobody_enter_while_an_update_is_due() -> None:
    assert not policy("flush").may_enter(update_due=True)
    assert policy("flush").may_enter(update_due=False)


def obey(rule: VersionPolicy, choices: list[int], update_every: int) -> tuple[int, int, int]:
    """Intervals enter and finish as `choices` say and the policy allows; then those in flight finish.

    The most versions ever alive, the furthest a gradient was behind, and the updates still due at the end.
    """
    latest, came, in_flight, alive, behind = 0, 0, list[int](), 1, 0
    for choice in choices + [1] * len(choices):
        if choice == 0 and rule.may_enter(came >= update_every):
            in_flight.append(latest)
        elif choice > 0 and in_flight:
            version = in_flight.pop(choice % len(in_flight))
            behind = max(behind, latest - version)
            came += 1
        if came >= update_every and rule.may_update(latest, in_flight):
            latest, came = latest + 1, 0
        alive = max(alive, len({latest, *in_flight}))
    return alive, behind, came // update_every


schedules = st.lists(st.sampled_from([0, 0, 1, 2, 3]), max_size=60)


@given(choices=schedules, update_every=st.integers(1, 4), name=st.sampled_from(list(POLICIES)))
def test_no_schedule_holds_more_versions_than_the_policy_says(
    choices: list[int], update_every: int, name: str
) -> None:
    rule = policy(name)
    alive, behind, due = obey(rule, choices, update_every)
    if rule.max_versions is not None:
        assert alive <= rule.max_versions
        assert behind < rule.max_versions
    assert due == 0


def test_without_a_policy_such_schedules_do_hold_more() -> None:
    """The law above can fail."""
    alive, behind, _ = obey(policy("stash"), [0, 0, 0, 3, 0, 3, 0, 3, 0], update_every=1)
    assert alive > 2
    assert behind > 1


def test_policies_need_neither_torch_nor_numpy() -> None:
    code = "import sys, siafu.weights.policy; assert not {'torch', 'numpy'} & set(sys.modules), 'heavy'"
    subprocess.run([sys.executable, "-c", code], check=True)
