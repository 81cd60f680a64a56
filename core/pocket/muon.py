"""Muon (Jordan et al. 2024) in float32: gradient steps of matrices, made orthogonal.

torch.optim.Muon computes in bfloat16. CPUs without such instructions take ten times as long for it, more than for the
model itself. Numbers are as there: Nesterov momentum, five Newton-Schulz steps, a rate matched to AdamW's."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

#: Coefficients of the Newton-Schulz step, chosen by its authors for speed: singular values end between 0.7 and 1.2.
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


class Muon(torch.optim.Optimizer):
    """Moves matrices only. `lr` is as for AdamW: an update has a root mean square of about a fifth of it."""

    def __init__(
        self, matrices: Iterable[Tensor], lr: float, momentum: float = 0.95, weight_decay: float = 0.01
    ) -> None:
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Move every matrix by its gradient; `closure` is not used."""
        for group in self.param_groups:
            alike: dict[torch.Size, list[Tensor]] = {}
            for matrix in group["params"]:
                alike.setdefault(matrix.shape, []).append(matrix)
            for shape, matrices in alike.items():  # one batch per shape
                updates = orthogonal(
                    torch.stack([self._nesterov(one, group["momentum"]) for one in matrices])
                )
                rate = group["lr"] * 0.2 * math.sqrt(max(shape))
                for matrix, update in zip(matrices, updates, strict=True):
                    matrix.mul_(1 - group["lr"] * group["weight_decay"]).sub_(update, alpha=rate)

    def _nesterov(self, matrix: Tensor, momentum: float) -> Tensor:
        gradient = matrix.grad
        if gradient is None:
            raise ValueError("every matrix needs a gradient")
        past = self.state[matrix].setdefault("momentum", torch.zeros_like(gradient))
        past.lerp_(gradient, 1 - momentum)
        return gradient.lerp(past, momentum)


def orthogonal(matrices: Tensor, steps: int = 5) -> Tensor:
    """About the nearest orthogonal matrix of each [batch, rows, columns], by Newton-Schulz iteration."""
    a, b, c = NEWTON_SCHULZ
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    result: Tensor = x.mT if tall else x
    return result
