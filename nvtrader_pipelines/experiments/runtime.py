"""Runs an experiment: trains every fold and seed, then judges all of them and the baselines walk-forward."""

import hashlib
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import polars as pl

from nvtrader_pipelines.envs.dynamics import resolve_fill
from nvtrader_pipelines.evaluation.backtest import BacktestRecord, Contestant, backtest
from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.agents import Fit
from nvtrader_pipelines.policies.archive import PolicyArchiveError, PolicyCard, read_archive, write_archive
from nvtrader_pipelines.policies.learned import EnsemblePolicy, LearnedPolicy
from nvtrader_pipelines.policies.training import TrainingTask, train_all

DECIDING = ("market", "portfolio", "envs", "policies", "evaluation", "experiments")  # folders that decide results


def _source_digest() -> str:
    """8 hexadecimal digits of the sources that decide results, so that edited code makes new runs."""
    state = hashlib.sha256()
    for folder in DECIDING:
        for path in sorted(Path(str(files("nvtrader_pipelines").joinpath(folder))).rglob("*.py")):
            state.update(path.read_bytes())
    return state.hexdigest()[:8]


CODE_VERSION = f"{version('nvtrader-pipelines')}+{_source_digest()}"
SURVIVORSHIP = (
    "survivorship bias: the sample's 20 names are known to have lived through 1990-2022, "
    "so every result on it flatters all strategies, and those that buy losers most"
)
FoldSeed = tuple[int, int]


@dataclass(frozen=True, eq=False)
class RunPlan:
    """One run of an experiment on one state of the market; the same content has the same `run_id`."""

    spec: ExperimentSpec
    panel: MarketPanel
    panel_digest: str
    folds: tuple[Fold, ...]

    @property
    def run_id(self) -> str:
        """16 hexadecimal digits of the spec, the market's content and the code's version."""
        content = "|".join((self.spec.spec_hash, self.panel_digest, CODE_VERSION))
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def keys(self) -> list[FoldSeed]:
        """Every fold and seed of the run."""
        return [(fold.index, seed) for fold in self.folds for seed in self.spec.seeds]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader of the results must know."""
        found = [SURVIVORSHIP] if self.panel.source == "sample" else []
        wanted, resolved = self.spec.environment.fill, resolve_fill(self.spec.environment.fill, self.panel)
        if wanted != resolved:
            found.append(f"orders fill at the {resolved}, not the {wanted} asked for: the market has no opens")
        if resolved == "same_close":
            found.append("orders fill at the close they are decided on (cheat-on-close), as the spec asks")
        if self.panel.delisted.any():
            found.append("a delisted name is paid out in cash at its last price without cost: an optimistic assumption")
        return tuple(found)

    def card(self, task: TrainingTask, fit: Fit) -> PolicyCard:
        """The card of one trained policy."""
        sessions = self.panel.sessions
        return PolicyCard(
            experiment=self.spec.partition_key,
            spec_hash=self.spec.spec_hash,
            fold=task.fold,
            seed=task.seed,
            environment=self.spec.environment,
            agent=self.spec.agent,
            symbols=self.panel.symbols,
            feature_names=self.panel.feature_names,
            scaler=fit.scaler,
            train_first=str(sessions[task.window[0]]),
            train_last=str(sessions[task.window[1]]),
            panel_digest=self.panel_digest,
            warnings=self.warnings,
            learning_curve=tuple(fit.curve),
        )


@dataclass(frozen=True, eq=False)
class TrainedPolicy:
    """One policy file; its card holds how the training went."""

    fold: int
    seed: int
    archive: bytes


def train(
    plan: RunPlan, done: Collection[FoldSeed] = (), report: Callable[[str], None] = lambda _: None
) -> Generator[TrainedPolicy, None, None]:
    """Train the folds and seeds that are not `done`, handing out each as it is ready; closing it ends the workers."""
    spec = plan.spec
    tasks = [
        TrainingTask(fold.index, seed, (fold.train_first, fold.train_last), spec.environment, spec.agent)
        for fold in plan.folds
        for seed in spec.seeds
        if (fold.index, seed) not in done
    ]
    total = len(plan.folds) * len(spec.seeds)
    with closing(train_all(plan.panel, tasks)) as trained:  # its workers end with this generator
        for count, (task, fit) in enumerate(trained, start=total - len(tasks) + 1):
            report(f"{spec.name}: trained fold {task.fold} seed {task.seed} ({count} of {total})")
            yield TrainedPolicy(task.fold, task.seed, write_archive(plan.card(task, fit), fit.tensors))


def judge(plan: RunPlan, archives: Mapping[FoldSeed, bytes]) -> BacktestRecord:
    """Walk every seed, their ensemble and the baselines through the test windows.

    Raises:
        KeyError: if the archive of a fold and seed is missing.
        PolicyArchiveError: if an archive cannot be used, or is not the one of its fold and seed in this run.
    """
    spec, panel = plan.spec, plan.panel
    learned = {key: _opened(plan, key, archives) for key in plan.keys}
    by_seed = {seed: [learned[fold.index, seed] for fold in plan.folds] for seed in spec.seeds}
    contestants = [
        Contestant(f"{spec.name}/seed-{seed}", "policy", seed, tuple(policies)) for seed, policies in by_seed.items()
    ]
    averages = [EnsemblePolicy(members) for members in zip(*by_seed.values(), strict=True)]
    contestants.append(Contestant(spec.name, "ensemble", None, tuple(averages)))
    for baseline in spec.baselines:
        worker = baseline.start()
        contestants.append(Contestant(baseline.kind, "baseline", None, (worker,) * len(plan.folds)))
    return backtest(panel, spec.environment, plan.folds, contestants)


def _opened(plan: RunPlan, key: FoldSeed, archives: Mapping[FoldSeed, bytes]) -> LearnedPolicy:
    """One policy of the run; that of another fold may have been trained on the sessions it would be judged on."""
    if key not in archives:
        raise KeyError(f"the policy of fold {key[0]} seed {key[1]} is missing; train the experiment to the end")
    card, tensors = read_archive(archives[key])
    if (card.fold, card.seed, card.spec_hash, card.panel_digest) != (*key, plan.spec.spec_hash, plan.panel_digest):
        raise PolicyArchiveError(
            f"the policy of fold {key[0]} seed {key[1]} of {plan.spec.partition_key} on the market "
            f"{plan.panel_digest[:8]} is one of fold {card.fold} seed {card.seed} of {card.experiment} on the market "
            f"{card.panel_digest[:8]}; train the experiment again"
        )
    return LearnedPolicy(card, tensors, plan.panel)


def training_curves(archives: Mapping[FoldSeed, bytes]) -> pl.DataFrame:
    """The learning curves kept in the policies' cards: fold, seed, timesteps, mean reward of a step."""
    rows = [
        (fold, seed, timesteps, reward)
        for (fold, seed), content in sorted(archives.items())
        for timesteps, reward in read_archive(content)[0].learning_curve
    ]
    schema = {"fold": pl.Int32, "seed": pl.Int32, "timesteps": pl.Int64, "mean_reward": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")
