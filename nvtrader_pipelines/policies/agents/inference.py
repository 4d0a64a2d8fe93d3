"""Keyword arguments of networks that are built for inference only."""

from typing import Any

import torch


class NoOptimizer(torch.optim.Optimizer):
    """Empty optimizer for inference: the first real one imports PyTorch's compiler, for 1.5 s."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


INFERENCE_ONLY = {"optimizer_class": NoOptimizer, "optimizer_kwargs": {}}
