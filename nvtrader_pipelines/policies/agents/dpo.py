"""Direct preference optimization: tune a trained policy to pairs of portfolios."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from nvtrader_pipelines.envs.observations import ObservationScaler
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.policies.agents.dpo_settings import DpoSettings
from nvtrader_pipelines.policies.fit import TrainingHooks
from nvtrader_pipelines.policies.preference_data import Tuning

if TYPE_CHECKING:
    from stable_baselines3.common.policies import BasePolicy

    from nvtrader_pipelines.envs.simulation import PortfolioSimulation
    from nvtrader_pipelines.policies.agents.training_log import TrainingLog


class DpoAgent(DpoSettings):
    """DPO (Rafailov et al. 2023) of the policies of a run, fold by fold and seed by seed.

    The log-probability of a portfolio is that of its logits under independent normals around the network's, with one
    fixed deviation; the part of the logits that no portfolio depends on is removed. A segment is one decision. The
    critic and the deviation of the actions are not trained. `gamma`, `ent_coef` and the like do not act.
    """

    is_tunable: ClassVar[bool] = False
    is_tuned: ClassVar[bool] = True

    kind: Literal["dpo"] = "dpo"

    def require_experiment(self, spec: Any, field: str) -> None:
        """Require an action whose weights can be inverted, too.

        Raises:
            ValueError: if the experiment has another.
        """
        super().require_experiment(spec, field)
        if spec.environment.is_levered or getattr(spec.environment.action, "needs_account", False):
            raise ValueError(
                f"environment.action: preferences tune policies of the simplex and the residual action only, but it is "
                f"{spec.environment.action.kind}; choose another policy"
            )

    @property
    def n_portfolios(self) -> int:
        """No portfolio is simulated: pairs are states already."""
        return 1

    def fit_scaler(
        self,
        panel: MarketPanel,  # noqa: ARG002 - one signature for all learners
        env: EnvSpec,  # noqa: ARG002
        windows: Sequence[Window],  # noqa: ARG002
        hooks: TrainingHooks,
    ) -> ObservationScaler:
        """Return the scaler of the starting policy.

        Raises:
            ValueError: if there is nothing to tune.
        """
        return self._tuning(hooks).scaler

    def learn(
        self, simulation: "PortfolioSimulation", seed: int, hooks: TrainingHooks
    ) -> "tuple[BasePolicy, TrainingLog]":
        """Tune the starting policy of the hooks to their pairs, and return it with the log.

        Raises:
            CheckpointError: if the checkpoint to resume from is damaged or of another training.
            ValueError: if a pair lies outside the training, or the starting policy does not fit.
        """
        import torch

        from nvtrader_pipelines.policies.agents.dpo_training import DpoTraining

        with torch.random.fork_rng(devices=[]):
            training = DpoTraining(self, simulation, seed, hooks, self._tuning(hooks))
            while not training.is_done:
                training.run_epoch()
        return training.best_policy(), training.log

    def _tuning(self, hooks: TrainingHooks) -> Tuning:
        if not isinstance(hooks.start, Tuning):
            raise ValueError(
                "dpo tunes the policies of a run by its preference pairs, but this training has none; start it with "
                "`nvtrader preferences train`"
            )
        return hooks.start
