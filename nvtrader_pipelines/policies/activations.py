"""What may be said of a policy that Stable-Baselines3 trained elsewhere, and how large its file may be."""

from typing import Literal

Algorithm = Literal["ppo", "a2c", "sac", "td3"]
Activation = Literal["tanh", "relu", "elu", "leaky_relu", "silu", "gelu"]
MOST_BYTES = 1 << 28  # of a file, a member or all tensors; a zip may unpack to more than there is memory
