"""Anderson acceleration of a fixed-point iteration x -> F(x)."""

from __future__ import annotations

import numpy as np


class Anderson:
    """Extrapolates from the last few steps; the caller decides whether to accept a proposal.

    Each proposal is the combination of the past images F(x_j) whose residuals F(x_j) - x_j,
    combined the same way, nearly cancel.
    """

    def __init__(self, depth: int = 8) -> None:
        self._depth = depth
        self.forget()

    def forget(self) -> None:
        """Start again from the next point."""
        self._images: list[np.ndarray] = []
        self._residuals: list[np.ndarray] = []

    def propose(self, x: np.ndarray, image: np.ndarray) -> np.ndarray:
        """The next point to try, after F(x) = image; `image` itself when there is no history."""
        self._images.append(image)
        self._residuals.append(image - x)
        del self._images[: -self._depth - 1], self._residuals[: -self._depth - 1]
        if len(self._images) < 2:
            return image
        change = np.diff(np.array(self._residuals), axis=0).T
        blend, *_ = np.linalg.lstsq(change, self._residuals[-1], rcond=1e-6)
        return image - np.diff(np.array(self._images), axis=0).T @ blend
