"""Scores and losses as their papers write them, in torch, triple by triple: the judges of ours."""

import torch
from torch import Tensor
from torch.nn import functional as F


def score(name: str, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
    """f(h, r, t); rows of complex numbers have their real parts first."""
    if name == "dot":
        return (h * t).sum(-1)
    if name == "distmult":
        return (h * r * t).sum(-1)
    if name == "complex":
        return (_complex(h) * _complex(r) * _complex(t).conj()).sum(-1).real
    if name == "transe":
        return -torch.linalg.vector_norm(h + r - t, ord=2, dim=-1)
    if name == "transe-l1":
        return -torch.linalg.vector_norm(h + r - t, ord=1, dim=-1)
    turned = _complex(h) * torch.polar(torch.ones_like(r), r)
    return -(turned - _complex(t)).abs().sum(-1)


def loss(name: str, positive: Tensor, negatives: Tensor, margin: float, temperature: float) -> Tensor:
    """The sum over triples; positive: [b], negatives: [b, n]."""
    if name == "softmax":
        every = torch.cat([positive[:, None] - margin, negatives], 1)
        return F.cross_entropy(every, torch.zeros(len(every), dtype=torch.int64), reduction="sum")
    if name == "logistic":
        weights = torch.full_like(negatives, 1 / negatives.shape[1])
        if temperature:
            weights = torch.softmax(temperature * negatives, 1).detach()
        wrong = (weights * F.softplus(negatives + margin)).sum()
        return F.softplus(-positive - margin).sum() + wrong
    return F.relu(margin - positive[:, None] + negatives).mean(1).sum()


def _complex(rows: Tensor) -> Tensor:
    real, imaginary = rows.chunk(2, -1)
    return torch.complex(real, imaginary)
