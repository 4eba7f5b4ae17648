"""Metrics of links, against SciPy and against their definitions."""

import pytest
import torch
from scipy.stats import mannwhitneyu

from siafu.objective.link_metrics import auc, hits_at, link_metrics, mrr

GENERATOR = torch.Generator().manual_seed(0)
POSITIVE = torch.randint(0, 30, (40,), generator=GENERATOR).double() + 3
NEGATIVE = torch.randint(0, 30, (70,), generator=GENERATOR).double()


def test_auc_is_the_statistic_of_mann_and_whitney() -> None:
    wanted = mannwhitneyu(POSITIVE.numpy(), NEGATIVE.numpy()).statistic / (40 * 70)
    assert auc(POSITIVE, NEGATIVE) == pytest.approx(wanted)


@pytest.mark.parametrize("k", [1, 10, 70])
def test_hits_are_above_the_kth_best_negative(k: int) -> None:
    bound = sorted(NEGATIVE.tolist(), reverse=True)[k - 1]
    assert hits_at(k, POSITIVE, NEGATIVE) == sum(each > bound for each in POSITIVE.tolist()) / 40
    assert hits_at(71, POSITIVE, NEGATIVE) == 1.0


def test_mrr_has_the_middle_rank_of_equals() -> None:
    ranks = [
        1 + ((each < NEGATIVE).sum() + (each <= NEGATIVE).sum()).item() / 2 for each in POSITIVE.tolist()
    ]
    assert mrr(POSITIVE, NEGATIVE) == pytest.approx(sum(1 / rank for rank in ranks) / 40)


def test_links_that_all_stand_above_are_perfect() -> None:
    found = link_metrics(torch.full((5,), 2.0), torch.zeros(200))
    assert set(found.values()) == {1.0}
