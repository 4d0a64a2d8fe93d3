"""Networks: what the backbones build, in PyTorch; kept apart, since PyTorch takes seconds to import."""
