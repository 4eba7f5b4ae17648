"""Metrics of links: how far the scores of pairs with a link stand above those of pairs without one."""

import torch
from torch import Tensor


def auc(positive: Tensor, negative: Tensor) -> float:
    """Area under the ROC curve: the share of (link, no link) in which the link scores more; equal scores count half."""
    order = torch.sort(negative.double()).values
    below = torch.searchsorted(order, positive.double())
    up_to = torch.searchsorted(order, positive.double(), right=True)
    return float((below + up_to).double().sum() / (2 * len(positive) * len(negative)))


def hits_at(k: int, positive: Tensor, negative: Tensor) -> float:
    """Share of the links that score more than the k-th best pair without one, as OGB counts it; 1 with fewer than k such pairs."""
    if len(negative) < k:
        return 1.0
    bound = torch.topk(negative, k).values[-1]
    return float((positive > bound).double().mean())


def mrr(positive: Tensor, negative: Tensor) -> float:
    """Mean reciprocal rank of a link among all pairs without one; of equal scores it has the middle rank, as OGB counts it."""
    order = torch.sort(negative.double()).values
    total = len(order)
    above = total - torch.searchsorted(order, positive.double(), right=True)
    not_below = total - torch.searchsorted(order, positive.double())
    return float((1.0 / (1 + (above + not_below).double() / 2)).mean())


def link_metrics(positive: Tensor, negative: Tensor) -> dict[str, float]:
    """All of them, by name."""
    hits = {f"hits_at_{k}": hits_at(k, positive, negative) for k in (10, 20, 50, 100)}
    return {"auc": auc(positive, negative), "mrr": mrr(positive, negative), **hits}
