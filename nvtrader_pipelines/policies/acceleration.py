"""Acceleration of trainings on the differentiable market by a machine: a GPU, and compiled code.

It belongs to the machine, not to the experiment: a run's identity is the same, and its policies differ by rounding.
"""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

DEVICE = "NVTRADER_DEVICE"  # environment variable: cpu, cuda, or auto for a GPU where there is one; auto if not set
COMPILE = "NVTRADER_COMPILE"  # environment variable: 1 to compile the market's transition by `torch.compile`
CACHE = "TORCHINDUCTOR_CACHE_DIR"  # environment variable of PyTorch: folder of compiled code


def training_device() -> "torch.device":
    """Device of trainings on the differentiable market, by $NVTRADER_DEVICE.

    Raises:
        ValueError: if the variable names no device, or a GPU and there is none.
    """
    import torch

    name, has_gpu = os.environ.get(DEVICE) or "auto", torch.cuda.is_available()
    if name not in ("auto", "cpu", "cuda"):
        raise ValueError(f"${DEVICE} must be auto, cpu or cuda, but it is {name!r}")
    if name == "cuda" and not has_gpu:
        raise ValueError(f"${DEVICE} is cuda, but PyTorch {torch.__version__} finds no GPU; set it to auto or cpu")
    return torch.device("cuda" if has_gpu and name != "cpu" else "cpu")


def keep_compiled(folder: Path) -> None:
    """Keep compiled code in a folder for processes that start later, unless $TORCHINDUCTOR_CACHE_DIR names another."""
    os.environ.setdefault(CACHE, str(folder))


def describe_acceleration() -> str:
    """Device and compilation, where they are not a plain CPU's; empty otherwise."""
    import torch

    device = training_device()
    parts = [torch.cuda.get_device_name(device)] if device.type == "cuda" else []
    return ", ".join([*parts, *(["compiled"] if _compiles() else [])])


def accelerated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function compiled at its first call if $NVTRADER_COMPILE is 1; itself otherwise, or where that fails.

    Raises:
        ValueError: if the variable is neither 0 nor 1.
    """
    if not _compiles():
        return function
    import torch
    from torch._dynamo.exc import TorchDynamoException

    call = torch.compile(function)

    def compiled(*arguments: Any) -> Any:
        nonlocal call
        try:
            return call(*arguments)
        except TorchDynamoException as error:
            if call is function:
                raise
            reason = str(error).strip().partition("\n")[0]
            warnings.warn(f"trains without compiled code, since PyTorch cannot compile here: {reason}", stacklevel=2)
            call = function
            return call(*arguments)

    return compiled


def _compiles() -> bool:
    value = os.environ.get(COMPILE) or "0"
    if value not in ("0", "1"):
        raise ValueError(f"${COMPILE} must be 0 or 1, but it is {value!r}")
    return value == "1"
