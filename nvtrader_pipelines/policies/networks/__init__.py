"""PyTorch networks of the backbones, in their own folder since PyTorch takes seconds to import."""
