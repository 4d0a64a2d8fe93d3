"""Study of a search session: proposals, the results that proposers learn from, and its export to Optuna."""

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from nvtrader_pipelines.research.journal import Knobs, Line, TrialJudged, TrialRerun
from nvtrader_pipelines.research.knobs import Knob
from nvtrader_pipelines.research.proposers import Proposer, derive_seed
from nvtrader_pipelines.storage.errors import StorageError

if TYPE_CHECKING:  # imported in functions, since Optuna is slow to import
    from optuna import Trial
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

MIN_RESULTS = 2  # different ones, that importances can explain
MIN_DRAWN = 10  # different results, that figures can show
N_DRAWS = 16  # of an outlook
POOR_SHARPE = -10.0  # of a proposal without a result: below every portfolio's, and finite, as proposers need it


@dataclass(frozen=True)
class Outlook:
    """Center and spread of a proposer's next proposal, by knob and in its unit.

    On a log scale the center is the geometric mean and the spread a factor, of at least 1.
    """

    center: dict[str, float]
    spread: dict[str, float]


class Study:
    """Proposals of a session and their results, in memory.

    CMA-ES keeps its state in the trials, as a pickle. No pickle is read from disk: `restore` builds the state again.
    """

    def __init__(self, proposer: Proposer, knobs: Sequence[Knob], seed: int) -> None:
        from optuna import create_study

        self._proposer, self._knobs, self._seed = proposer, tuple(knobs), seed
        self._sampler_of = proposer.start(knobs, seed)
        self._distributions = _distributions(knobs)
        self._trial_numbers: dict[int, int] = {}  # Optuna's, by proposal without a result so far
        with _quiet():
            self._study = create_study(direction="maximize")

    def ask(self, number: int) -> Knobs:
        """Return a proposal, a value for every knob.

        Args:
            number: of the proposal, from 1.

        Raises:
            SpaceExhausted: if a grid has no point left.
        """
        return self._ask(number).params

    def tell(self, number: int, value: float | None) -> None:
        """Add the result of a proposal; None if it is to be ignored."""
        from optuna.trial import TrialState

        state = TrialState.FAIL if value is None else TrialState.COMPLETE
        self._study.tell(self._trial_numbers.pop(number), value, state=state)

    def replace(self, number: int, proposed: Mapping[str, int | float]) -> None:
        """Put other values, clipped to the bounds, in the place of the proposal that `ask` returned.

        The proposer continues as `restore` has it continue from the journal's row. Of CMA-ES, the values take the place
        of its own in the generation.
        """
        trial = self._study.get_trials(deepcopy=False)[self._trial_numbers[number]]
        if trial.params == self._clip(proposed):
            return
        self.tell(number, None)
        self._add(number, proposed, trial.system_attrs if self._proposer.is_stateful else {})

    def add(self, number: int, proposed: Mapping[str, int | float]) -> None:
        """Add a proposal of the journal, clipped to the bounds, as if `ask` had returned it.

        CMA-ES is asked again, which builds its state. Where it proposes other values, since results came in another
        order or a model proposed, that proposal is ignored and the one of the journal takes its place.
        """
        if self._proposer.is_stateful:
            self._ask(number)
            self.replace(number, proposed)
        else:
            self._add(number, proposed, {})

    def restore(self, rows: Iterable[TrialJudged]) -> None:
        """Add proposals and results of a journal, so that the next proposal is that of a session that never stopped.

        The session has one worker, which knows each result before the next proposal. For more workers, call `add` and
        `tell` in the order of the session.
        """
        for row in rows:
            self.add(row.proposal, row.proposed)
            self.tell(row.proposal, objective(row))

    def outlook(self, number: int) -> Outlook:
        """Center and spread of draws from the state in which a proposal is asked for; the study stays as it is."""
        from optuna import create_study
        from optuna.trial import TrialState

        sampler_of = self._proposer.start(self._knobs, derive_seed(self._seed, number))
        asked, draws = self._trial_numbers.get(number), []
        with _quiet():
            study = create_study(direction="maximize")
            study.add_trials(trial for trial in self._study.get_trials(deepcopy=False) if trial.number != asked)
            for i in range(N_DRAWS):
                study.sampler = sampler_of(i)
                draws.append(study.ask(self._distributions))
                study.tell(draws[-1], state=TrialState.FAIL)
        center, spread = {}, {}
        for knob in self._knobs:
            center[knob.name], spread[knob.name] = _moments(knob, [draw.params[knob.name] for draw in draws])
        return Outlook(center, spread)

    def _ask(self, number: int) -> "Trial":
        with _quiet():
            self._study.sampler = self._sampler_of(number)
            trial = self._study.ask(self._distributions)
        self._trial_numbers[number] = trial.number
        return trial

    def _add(self, number: int, proposed: Mapping[str, int | float], state: dict[str, Any]) -> None:
        """Add a running trial with the state that CMA-ES keeps in it."""
        from optuna.trial import TrialState, create_trial

        trial = create_trial(
            state=TrialState.RUNNING,
            params=self._clip(proposed),
            distributions=self._distributions,
            system_attrs=state,
        )
        self._study.add_trial(trial)
        self._trial_numbers[number] = self._study.get_trials(deepcopy=False)[-1].number

    def _clip(self, proposed: Mapping[str, int | float]) -> Knobs:
        return {knob.name: knob.clip(proposed[knob.name]) for knob in self._knobs}


def _moments(knob: Knob, values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation of values, on a log scale as ratios."""
    if not knob.is_log:
        return float(np.mean(values)), float(np.std(values, ddof=1))
    logarithms = np.log(values)
    return float(np.exp(logarithms.mean())), float(np.exp(logarithms.std(ddof=1)))


def objective(row: TrialJudged) -> float | None:
    """Number that a proposer maximizes: the Sharpe ratio on validation, a poor one without a result.

    None for a proposal whose configuration is being judged.
    """
    is_running = row.status == "known" and row.trial is None
    return row.sharpe if row.sharpe is not None or is_running else POOR_SHARPE


def export_study(lines: Iterable[Line], knobs: Sequence[Knob], path: Path) -> None:
    """Write the trials of a journal as a study of Optuna, named like the file, to a new SQLite database.

    A trial has the knobs that were trained, those proposed where it is infeasible. Pruned trials are Optuna's pruned
    ones; those without a result have failed.

    Raises:
        StorageError: if the file exists.
    """
    from optuna import create_study
    from optuna.storages import RDBStorage

    if path.exists():
        raise StorageError(f"an exported study must be a new file, but {path} exists; name another file")
    trials = _trials_of(lines, knobs)
    with TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder, _quiet():
        aside = Path(folder) / "study"
        storage = RDBStorage(f"sqlite:///{aside}")
        create_study(storage=storage, study_name=path.stem, direction="maximize").add_trials(trials)
        storage.remove_session()
        storage.engine.dispose()
        aside.replace(path)


def knob_importances(lines: Iterable[Line], knobs: Sequence[Knob]) -> dict[str, float]:
    """Return Optuna's importance of each knob, a share of 1, the largest first; none before two results.

    Source: Watanabe et al. (2023), PED-ANOVA.
    """
    from optuna import create_study
    from optuna.importance import get_param_importances

    trials = [trial for trial in _trials_of(lines, knobs) if trial.state.name == "COMPLETE"]
    if len({trial.value for trial in trials}) < MIN_RESULTS:
        return {}
    with _quiet():
        study = create_study(direction="maximize")
        study.add_trials(trials)
        return get_param_importances(study)


def drawn_knobs(lines: Iterable[Line], knobs: Sequence[Knob]) -> list[Knob]:
    """Knobs that figures of a journal show: those that its finished trials have at different values.

    Raises:
        ValueError: if figures of so few trials or knobs would show nothing.
    """
    finished = [line for line in lines if isinstance(line, TrialJudged) and is_finished(line)]
    varied = [knob for knob in knobs if len({line.knobs[knob.name] for line in finished}) > 1]
    n_results = len({line.sharpe for line in finished})
    if n_results < MIN_DRAWN:
        raise ValueError(
            f"pictures need {MIN_DRAWN} different Sharpe ratios of finished trials or more, but there are {n_results}: "
            "their journal has all"
        )
    if len(varied) < 2:
        raise ValueError(
            f"pictures need two knobs or more that trials vary, but these vary {len(varied)}: their journal has all"
        )
    return varied


def is_finished(row: TrialJudged) -> bool:
    """Whether a trial was validated on all folds."""
    return row.sharpe is not None and row.status != "pruned"


def study_figures(lines: Iterable[Line], knobs: Sequence[Knob]) -> dict[str, Any]:
    """Draw a journal's finished trials and `drawn_knobs` by Optuna, as JSON of Plotly by figure."""
    from optuna import create_study
    from optuna.visualization import plot_parallel_coordinate, plot_param_importances, plot_slice

    plots = {"parallel": plot_parallel_coordinate, "slices": plot_slice, "importances": plot_param_importances}
    with _quiet():
        study = create_study(direction="maximize")
        study.add_trials(_trials_of(lines, knobs))
        figures = {name: plot(study, target_name="Sharpe ratio") for name, plot in plots.items()}
    return {name: json.loads(figure.update_layout(template=None).to_json()) for name, figure in figures.items()}


def _trials_of(lines: Iterable[Line], knobs: Sequence[Knob]) -> "list[FrozenTrial]":
    lines = list(lines)
    reruns = {line.spec_hash: line for line in lines if isinstance(line, TrialRerun)}
    return [_trial_of(line, reruns.get(line.spec_hash), knobs) for line in lines if isinstance(line, TrialJudged)]


def _trial_of(row: TrialJudged, rerun: TrialRerun | None, knobs: Sequence[Knob]) -> "FrozenTrial":
    from optuna.trial import TrialState, create_trial

    values = row.knobs or row.proposed
    inside = [knob for knob in knobs if knob.name in values and knob.clip(values[knob.name]) == values[knob.name]]
    state = TrialState.PRUNED if row.status == "pruned" else TrialState.COMPLETE
    lead = rerun.lead if rerun else row.lead
    trial = create_trial(
        state=TrialState.FAIL if row.sharpe is None else state,
        value=row.sharpe,
        params={knob.name: values[knob.name] for knob in inside},
        distributions=_distributions(inside),
        user_attrs={
            "spec_hash": row.spec_hash,
            "standing": str(rerun.standing if rerun else row.standing),
            "status": row.status,
            "message": (rerun and rerun.message) or row.message,
            "lead_t": lead.t if lead else None,
        },
        intermediate_values=dict(enumerate(row.fold_sharpes)),
    )
    trial.datetime_complete = row.finished_at.astimezone().replace(tzinfo=None)  # Optuna's times are local
    trial.datetime_start = trial.datetime_complete - timedelta(seconds=row.seconds)
    return trial


def _distributions(knobs: Sequence[Knob]) -> "dict[str, BaseDistribution]":
    from optuna.distributions import FloatDistribution, IntDistribution

    return {
        knob.name: IntDistribution(int(knob.low), int(knob.high), log=knob.is_log)
        if knob.is_whole
        else FloatDistribution(knob.low, knob.high, log=knob.is_log)
        for knob in knobs
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Optuna's messages and its warnings of experimental features, and nobody else's."""
    from optuna.exceptions import ExperimentalWarning
    from optuna.logging import ERROR, get_verbosity, set_verbosity

    verbosity = get_verbosity()
    set_verbosity(ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            yield
    finally:
        set_verbosity(verbosity)
