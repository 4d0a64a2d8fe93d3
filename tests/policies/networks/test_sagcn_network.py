import numpy as np
import pytest
import torch

from nvtrader_pipelines.policies.backbones import SagcnBackbone
from nvtrader_pipelines.policies.networks.sagcn_network import AssetUnit, graph_orders
from tests.policies.backbones.networks import LAYOUT, LOOKBACK, N, trained


def unit(n_layers=2):
    torch.manual_seed(0)
    return AssetUnit(LAYOUT, channels=3, n_layers=n_layers, dropout=0.2)


def test_graph_orders_collect_neighbors_and_their_neighbors():
    chain = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    halves = torch.full((3, 3), 0.5)
    values = torch.tensor([1.0, 10.0, 100.0])
    collected = graph_orders(torch.stack([chain, halves])) @ torch.kron(values[:, None], torch.eye(4))
    expected = [[10, 100, 0], [100, 0, 0], [55.5] * 3, [83.25] * 3]
    np.testing.assert_allclose(collected.T, expected)


def test_layer_equals_convolutions_and_attention_by_loops():
    layer, graphs = unit().layers[1], torch.rand(2, N, N)
    layer.eval()
    maps = torch.randn(3, N, 3)  # sessions, names, channels
    (temporal, temporal_bias), (own, own_bias) = ([*part.parameters()] for part in (layer.temporal, layer.name))
    neighbors = layer.neighbors.weight.view(4, 3, 3)
    past = torch.stack([temporal @ torch.cat([maps[0, i], maps[2, i]]) + temporal_bias for i in range(N)]).relu()
    powers = [graphs[0], graphs[0] @ graphs[0], graphs[1], graphs[1] @ graphs[1]]
    spread = sum(power @ past @ weight.T for power, weight in zip(powers, neighbors, strict=True))
    convolved = past @ own.T + own_bias + spread
    products = torch.outer(
        (layer.by_session * convolved) @ layer.channel_sessions[:, 0], convolved @ layer.by_channel
    ).relu()
    expected = layer.norm((layer.relations @ products).softmax(dim=1) @ convolved + maps[2])
    torch.testing.assert_close(layer(maps[None], graph_orders(graphs))[0, 0], expected)


def test_learned_adjacency_is_row_softmax_of_positive_products():
    assets = unit()
    assets.embedding.data = torch.tensor([1.0, 2.0, -3.0])
    rows = np.exp([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 0.0, 9.0]])
    learned = assets.graphs()[1].detach()
    np.testing.assert_allclose(learned, rows / rows.sum(axis=1, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(learned.sum(dim=1), 1.0, rtol=1e-6)


def test_correlation_equals_numpys_over_sessions_with_returns():
    returns, assets = 0.01 * np.random.default_rng(0).normal(size=(60, N)) + 0.02, unit()
    returns[:, 1] -= returns[:, 0]
    assets.fit_graph(torch.tensor(np.vstack([returns, np.full((2, N), np.nan)])))
    np.testing.assert_allclose(assets.correlation, np.corrcoef(returns.T), atol=1e-6)
    returns[20:, 2] = np.nan
    assets.fit_graph(torch.tensor(returns))
    assert assets.correlation.isfinite().all()
    np.testing.assert_allclose(assets.correlation[:2, :2], np.corrcoef(returns[:, :2].T), atol=1e-6)


def test_scores_read_the_last_sessions_of_the_window_and_no_more():
    window = torch.randn(2, LOOKBACK, N)
    assets, older = unit().eval(), window.clone()
    older[:, :-4] += 1.0
    assert assets(window).shape == (2, N)
    assert torch.equal(assets(older), assets(window))
    older[:, -4] += 1.0
    assert not torch.equal(assets(older), assets(window))
    assert unit(n_layers=5)(window).shape == (2, N)  # 32 sessions, of which the window has 12


@pytest.mark.slow
def test_ppo_trains_every_tensor_but_the_correlations():
    before, after = trained(SagcnBackbone(channels=4, n_layers=2, dropout=0.0))
    assert {name for name in after if torch.equal(before[name], after[name])} == {"mlp_extractor.assets.correlation"}
