"""What is accepted from a Stable-Baselines3 zip: algorithms, activation functions, size."""

from typing import Literal

Algorithm = Literal["ppo", "a2c", "sac", "td3"]
Activation = Literal["tanh", "relu", "elu", "leaky_relu", "silu", "gelu"]
MAX_BYTES = 1 << 28  # of a file, a zip member or all tensors together: a zip bomb would exhaust memory
