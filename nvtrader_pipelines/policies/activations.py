"""Algorithms, activations and file size accepted for policies that Stable-Baselines3 trained elsewhere."""

from typing import Literal

Algorithm = Literal["ppo", "a2c", "sac", "td3"]
Activation = Literal["tanh", "relu", "elu", "leaky_relu", "silu", "gelu"]
MAX_BYTES = 1 << 28  # of a file, a zip member or all tensors together: a zip bomb would exhaust memory
