"""The network of an autoencoder's code, and how it learns to reconstruct."""

import torch
from torch import Tensor, nn

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.backbones.autoencoder import AutoencoderBackbone
from nvtrader_pipelines.policies.backbones.backbone import OPTIMIZER
from nvtrader_pipelines.policies.networks.window import WindowEncoder


class CodeEncoder(WindowEncoder):
    """The window through a hidden layer to a code within (-1, 1)."""

    def __init__(self, layout: ObservationLayout, backbone: AutoencoderBackbone) -> None:
        super().__init__(backbone.code_size)
        self.network = nn.Sequential(
            nn.Flatten(),
            nn.Linear(layout.lookback * layout.n_symbols, backbone.encoder_hidden),
            nn.Tanh(),
            nn.Linear(backbone.encoder_hidden, backbone.code_size),
            nn.Tanh(),
        )
        self.requires_grad_(not backbone.frozen)

    def forward(self, window: Tensor) -> Tensor:
        """Codes (n, code_size)."""
        return self.network(window)


def reconstruct(encoder: nn.Module, windows: Tensor, backbone: AutoencoderBackbone, seed: int) -> list[float]:
    """Train the encoder with a decoder of its own on windows (T, lookback, n_symbols).

    Returns:
        The mean squared error over all windows before the first epoch and after each.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        decoder = nn.Sequential(
            nn.Linear(backbone.code_size, backbone.encoder_hidden),
            nn.Tanh(),
            nn.Linear(backbone.encoder_hidden, windows[0].numel()),
            nn.Unflatten(1, windows.shape[1:]),
        )
        network = nn.Sequential(encoder, decoder).requires_grad_()
        optimizer = torch.optim.Adam(network.parameters(), lr=backbone.learning_rate, **OPTIMIZER)
        errors = [_error(network, windows)]
        for _ in range(backbone.epochs):
            for batch in torch.randperm(len(windows)).split(backbone.batch_size):
                optimizer.zero_grad()
                nn.functional.mse_loss(network(windows[batch]), windows[batch]).backward()
                optimizer.step()
            errors.append(_error(network, windows))
    optimizer.zero_grad()  # a gradient left behind would be the next optimizer's
    encoder.requires_grad_(not backbone.frozen)
    return errors


def _error(network: nn.Module, windows: Tensor) -> float:
    with torch.no_grad():
        return float(nn.functional.mse_loss(network(windows), windows))
