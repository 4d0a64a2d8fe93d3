"""What a network is built with that only decides."""

from typing import Any

import torch


class NoOptimizer(torch.optim.Optimizer):
    """In place of the optimizer of a network that only decides: PyTorch's first imports its compiler, for 1.5 s."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


DECIDES = {"optimizer_class": NoOptimizer, "optimizer_kwargs": {}}  # of a network that is not trained
