"""Encoders that append forecasts of each name to the window, and their pretraining."""

from abc import abstractmethod

import torch
from torch import Tensor, nn
from typing_extensions import override

from nvtrader_pipelines.envs.choice import DESCRIPTORS, descriptors
from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.backbones.backbone import OPTIMIZER, TrainingHistory
from nvtrader_pipelines.policies.networks.window_network import WindowEncoder, WindowExtractor


class ForecastEncoder(WindowEncoder):
    """Encoder that appends `n_forecasts` of each name to the window; only `pretrain` trains it.

    A forecast is a function of the window, so it is computed once for each: a training sees few windows, but each
    hundreds of times.
    """

    def __init__(self, layout: ObservationLayout, n_forecasts: int, horizon: int) -> None:
        super().__init__((layout.lookback + n_forecasts) * layout.n_symbols)
        self.horizon = horizon  # sessions from an observation to the last return that it is trained on
        self.known: dict[bytes, Tensor] = {}  # by the bytes of a window
        self.register_load_state_dict_post_hook(lambda module, _: module.known.clear())

    @abstractmethod
    def forecast(self, window: Tensor) -> Tensor:
        """Forecasts (n, n_symbols, n_forecasts) of windows (n, lookback, n_symbols)."""

    @abstractmethod
    def losses(self, window: Tensor, targets: Tensor) -> Tensor:
        """Loss of each forecast, (n, n_symbols, n_forecasts)."""

    @abstractmethod
    def targets(self, history: TrainingHistory) -> Tensor:
        """Targets (T, n_symbols, n_forecasts) of the forecasts; NaN where there is none."""

    @torch.no_grad()
    def forward(self, window: Tensor) -> Tensor:
        """Return the windows and the forecasts, (n, n_features)."""
        keys = [row.tobytes() for row in window.numpy()]
        for i, key in enumerate(keys):
            if key not in self.known:  # one at a time, so that a forecast does not depend on others of its batch
                self.known[key] = self.forecast(window[i : i + 1]).flatten()
        return torch.cat([window.flatten(1), torch.stack([self.known[key] for key in keys])], dim=1)


class RiseEncoder(ForecastEncoder):
    """Probability that each name rises in the next session, by an LSTM that all names share."""

    def __init__(self, layout: ObservationLayout, hidden_size: int) -> None:
        super().__init__(layout, n_forecasts=1, horizon=1)
        self.lstm = nn.LSTM(1, hidden_size, batch_first=True)
        self.rise = nn.Linear(2 * hidden_size, 1)
        self.requires_grad_(requires_grad=False)

    def _logits(self, window: Tensor) -> Tensor:
        names = window.transpose(1, 2).flatten(0, 1)[:, :, None]  # (n * n_symbols, lookback, 1)
        _, (hidden, cell) = self.lstm(names)
        return self.rise(torch.cat([hidden[0], cell[0]], dim=1)).view(len(window), -1, 1)

    @override
    def forecast(self, window: Tensor) -> Tensor:
        return self._logits(window).sigmoid()

    @override
    def losses(self, window: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.binary_cross_entropy_with_logits(self._logits(window), targets, reduction="none")

    @override
    def targets(self, history: TrainingHistory) -> Tensor:
        returns = history.next_returns
        return torch.where(returns.isnan(), torch.nan, (returns > 0.0).double()).float()[:, :, None]


class InvestorsEncoder(ForecastEncoder):
    """Forecasts of a name's five descriptors over the coming window, each by a network that all names share."""

    def __init__(self, layout: ObservationLayout, hidden: int) -> None:
        super().__init__(layout, n_forecasts=len(DESCRIPTORS), horizon=layout.lookback)
        self.networks = nn.ModuleList(
            nn.Sequential(nn.Linear(layout.lookback, hidden), nn.ReLU(), nn.Linear(hidden, 1)) for _ in DESCRIPTORS
        )
        self.requires_grad_(requires_grad=False)

    @override
    def forecast(self, window: Tensor) -> Tensor:
        names = window.transpose(1, 2)
        return torch.cat([network(names) for network in self.networks], dim=2)

    @override
    def losses(self, window: Tensor, targets: Tensor) -> Tensor:
        return (self.forecast(window) - targets).square()

    @override
    def targets(self, history: TrainingHistory) -> Tensor:
        past = torch.from_numpy(descriptors(history.next_returns.numpy(), self.horizon))  # of windows that end here
        coming = torch.full_like(past, torch.nan)
        later = past[:, self.horizon - 1 :]
        coming[:, : later.shape[1]] = later
        n_known = coming.isfinite().sum(dim=(1, 2), keepdim=True).clamp(min=1)
        centered = coming - coming.nansum(dim=(1, 2), keepdim=True) / n_known
        deviations = (centered.square().nansum(dim=(1, 2), keepdim=True) / n_known).sqrt()
        return (centered / deviations.clamp(min=1e-8)).permute(1, 2, 0).float()


def pretrain(
    policy: nn.Module, history: TrainingHistory, epochs: int, batch_size: int, learning_rate: float, seed: int
) -> list[float]:
    """Train the first forecast encoder of a policy on the training windows, and copy it to the others.

    Equal seeds give equal bytes; torch's generator keeps its state.

    Returns:
        The mean loss of each epoch.
    """
    extractors = [module for module in policy.modules() if isinstance(module, WindowExtractor)]
    first, *others = (extractor.encoder for extractor in extractors)
    assert isinstance(first, ForecastEncoder)
    windows, targets = extractors[0].window(history.observations), first.targets(history)
    rows = torch.nonzero(targets.isfinite().flatten(1).any(dim=1)).flatten()
    if not len(rows):
        raise ValueError(
            f"forecasts of {first.horizon} sessions need as many after an observation, but none of the {len(targets)} "
            "training sessions has them; lower environment.lookback, or train on more sessions"
        )
    first.requires_grad_()
    means: list[float] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        optimizer = torch.optim.Adam(first.parameters(), lr=learning_rate, **OPTIMIZER)
        for _ in range(epochs):
            losses: list[float] = []
            for batch in rows[torch.randperm(len(rows))].split(batch_size):
                has_target = targets[batch].isfinite()
                loss = first.losses(windows[batch], targets[batch].nan_to_num())[has_target].mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            means.append(sum(losses) / max(len(losses), 1))
    first.zero_grad()  # or the next optimizer would apply these gradients
    first.requires_grad_(requires_grad=False)
    for encoder in others:
        assert isinstance(encoder, ForecastEncoder)
        encoder.load_state_dict(first.state_dict())
        encoder.known = first.known  # equal networks, equal forecasts
    return means
