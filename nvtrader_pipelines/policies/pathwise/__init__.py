"""Pathwise gradients: the market as a differentiable function of weights, in its own folder as it needs PyTorch."""
