"""Encoder network of an autoencoder, and its pretraining."""

import torch
from torch import Tensor, nn

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.backbones.backbone import OPTIMIZER
from nvtrader_pipelines.policies.networks.window_network import WindowEncoder


class CodeEncoder(WindowEncoder):
    """Encoder with one hidden layer, from the window to a code within (-1, 1)."""

    def __init__(self, layout: ObservationLayout, *, hidden: int, code_size: int, frozen: bool) -> None:
        super().__init__(code_size)
        self.hidden, self.frozen = hidden, frozen
        self.network = nn.Sequential(
            nn.Flatten(),
            nn.Linear(layout.lookback * layout.n_symbols, hidden),
            nn.Tanh(),
            nn.Linear(hidden, code_size),
            nn.Tanh(),
        )
        self.requires_grad_(not frozen)

    def forward(self, window: Tensor) -> Tensor:
        """Return codes (n, code_size)."""
        return self.network(window)


def reconstruct(
    encoder: CodeEncoder, windows: Tensor, *, epochs: int, batch_size: int, learning_rate: float, seed: int
) -> list[float]:
    """Train the encoder together with a new decoder on windows (T, lookback, n_symbols).

    Returns:
        The mean squared error over all windows before the first epoch and after each epoch.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        decoder = nn.Sequential(
            nn.Linear(encoder.n_features, encoder.hidden),
            nn.Tanh(),
            nn.Linear(encoder.hidden, windows[0].numel()),
            nn.Unflatten(1, windows.shape[1:]),
        )
        network = nn.Sequential(encoder, decoder).requires_grad_()
        optimizer = torch.optim.Adam(network.parameters(), lr=learning_rate, **OPTIMIZER)
        errors = [_error(network, windows)]
        for _ in range(epochs):
            for batch in torch.randperm(len(windows)).split(batch_size):
                optimizer.zero_grad()
                nn.functional.mse_loss(network(windows[batch]), windows[batch]).backward()
                optimizer.step()
            errors.append(_error(network, windows))
    optimizer.zero_grad()  # or the next optimizer would apply these gradients
    encoder.requires_grad_(not encoder.frozen)
    return errors


def _error(network: nn.Module, windows: Tensor) -> float:
    with torch.no_grad():
        return float(nn.functional.mse_loss(network(windows), windows))
