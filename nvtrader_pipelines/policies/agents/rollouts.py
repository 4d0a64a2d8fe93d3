"""Stable-Baselines3's rollout buffer with one copy per minibatch."""

from collections.abc import Generator

import numpy as np
import torch
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.type_aliases import RolloutBufferSamples
from torch import Tensor
from typing_extensions import override


class InPlaceRolloutBuffer(RolloutBuffer):
    """SB3's rollout buffer, equal bit for bit, whose arrays torch reads in place.

    The library's buffer is zeroed and reordered for each rollout, and copies each minibatch twice.
    """

    @override
    def reset(self) -> None:
        """Start a rollout; every entry is written before it is read."""
        if self.full:
            self.pos, self.full = 0, False
        else:
            super().reset()

    def flat(self) -> list[Tensor]:
        """Whole rollout in the order of `RolloutBufferSamples`, each (n_steps * n_envs, ...); no copies.

        Raises:
            RuntimeError: if steps are missing.
        """
        if not self.full:
            raise RuntimeError(
                f"minibatches need a whole rollout of {self.buffer_size} steps, but {self.pos} are there"
            )
        parts = (self.observations, self.actions, self.values, self.log_probs, self.advantages, self.returns)
        return [torch.from_numpy(part).flatten(0, 1) for part in parts]

    def shuffled_rows(self, batch_size: int | None = None) -> tuple[Tensor, ...]:
        """Rows of `flat` of each minibatch, in the library's random order."""
        size = self.buffer_size * self.n_envs
        order = np.random.permutation(size)  # noqa: NPY002 - the library's generator
        rows = torch.from_numpy(order % self.buffer_size * self.n_envs + order // self.buffer_size)
        return rows.split(batch_size or size)

    @override
    def get(self, batch_size: int | None = None) -> Generator[RolloutBufferSamples, None, None]:
        """Yield minibatches in the library's random order."""
        tensors = self.flat()
        for rows in self.shuffled_rows(batch_size):
            yield RolloutBufferSamples(*(tensor.index_select(0, rows) for tensor in tensors))
