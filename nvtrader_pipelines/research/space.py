"""Search space: knobs of a base experiment, and the experiment that a delta gives."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from nvtrader_pipelines.components.component import Component, canonical_json
from nvtrader_pipelines.components.explanation import explain
from nvtrader_pipelines.experiments.designs import WalkForwardDesign, leaves, replace_value
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.policies.agents.ppo import ClippedLearner, PpoAgent
from nvtrader_pipelines.policies.baselines import Cufolio
from nvtrader_pipelines.portfolio.pipeline.cufolio_allocator import CufolioAllocator
from nvtrader_pipelines.research.knobs import KNOBS, MAX_POSITION, ROLLOUT, Knob, SearchMode
from nvtrader_pipelines.research.proposal_bounds import BoundsClip, ConfigDelta, DeltaRefused, Snapped
from nvtrader_pipelines.research.search_settings import TIMESTEPS

MAX_PORTFOLIOS, MIN_STEPS = 64, 8  # parallel portfolios of a rollout, and steps of each
WHOLE = 32  # divides a rollout, so that the smallest batch does
ROLLOUT_PATHS = N_ENVS, N_STEPS, BATCH_SIZE = "agent.n_envs", "agent.n_steps", "agent.batch_size"
Document = dict[str, Any]


@dataclass(frozen=True)
class TrialSpec:
    """Configuration of a trial: its knobs after clips and snaps, and the hash that identifies it in every session."""

    knobs: dict[str, int | float]  # of every knob of the space
    trial_hash: str  # see `configuration_hash`


@dataclass(frozen=True)
class EffectiveExperiment:
    """Experiment of a delta, with the adjustments that led to it."""

    spec: ExperimentSpec
    trial: TrialSpec
    clips: tuple[BoundsClip, ...]
    snaps: tuple[Snapped, ...]


@dataclass(frozen=True)
class SearchSpace:
    """Knobs that a search varies, and the base experiment whose values they have before."""

    mode: SearchMode
    knobs: tuple[Knob, ...]
    base: ExperimentSpec  # within the bounds
    base_values: Mapping[str, float]  # by knob
    base_clips: tuple[BoundsClip, ...] = ()  # that brought the base within the bounds
    base_snaps: tuple[Snapped, ...] = ()
    notices: tuple[str, ...] = ()

    @classmethod
    def around(
        cls, base: ExperimentSpec, mode: SearchMode, knobs: Sequence[Knob], notices: Sequence[str] = ()
    ) -> "SearchSpace":
        """Return the space of knobs around an experiment, whose own values are clipped and snapped.

        Raises:
            ValueError: if the experiment lacks a knob, or is not valid within the bounds.
        """
        if base.design.is_ablation:
            raise ValueError(f"a search starts from one experiment, but {base.name} is an ablation; name a variant")
        numbers = numbers_of(base)
        missing = [knob.path for knob in knobs if knob.path not in numbers]
        if missing:
            raise ValueError(
                f"{mode} varies {', '.join(missing)}, but {base.name} has the agent {base.agent.kind} and no such "
                "number; choose another mode or experiment"
            )
        own = {knob.name: numbers[knob.path] for knob in knobs}
        if ROLLOUT in own:
            own[ROLLOUT] *= numbers[N_ENVS]
        # a design may hold sessions out of the training, which a look at the sealed window does not
        space = cls(mode, tuple(knobs), base.model_copy(update={"design": WalkForwardDesign()}), own)
        first = space.propose(own)
        return replace(
            space,
            base=first.spec,
            base_values=first.trial.knobs,
            base_clips=first.clips,
            base_snaps=first.snaps,
            notices=tuple(notices),
        )

    def apply(self, delta: ConfigDelta) -> EffectiveExperiment:
        """Return the base with the delta's values, each fitted to the others.

        The knob `n_steps` counts the steps of a rollout over all portfolios. It is lowered to a multiple of 32, the
        smallest batch, and split over the most portfolios that leave each 8 steps, a power of two up to 64: 64 steps
        are 8 portfolios of 8, 1,024 are 64 of 16. A batch is lowered to the next divisor of the rollout.

        Raises:
            DeltaRefused: if the result is no valid experiment.
        """
        values = {**self.base_values, **delta.values}
        wanted: dict[str, Any] = {path: value for path, value in numbers_of(self.base).items() if path in ROLLOUT_PATHS}
        wanted |= {knob.path: values[knob.name] for knob in self.knobs}
        fitted = wanted | _fit_batches(wanted, counts_rollout=ROLLOUT in values)
        names = {knob.path: knob.name for knob in self.knobs}
        snaps = [
            Snapped(knob=names.get(path, path), proposed=value, used=fitted[path])
            for path, value in wanted.items()
            if fitted[path] != value
        ]
        used = {knob.name: fitted[knob.path] for knob in self.knobs}
        try:
            spec = _with_values(self.base, fitted | (_split_rollout(used[ROLLOUT]) if ROLLOUT in used else {}))
        except ValidationError as error:
            problem = f"the values give no valid experiment: {explain(error, ExperimentSpec)}"
            raise DeltaRefused(problem, self.knobs) from error
        return EffectiveExperiment(spec, TrialSpec(used, configuration_hash(spec)), delta.clips, tuple(snaps))

    def propose(self, proposal: Any) -> EffectiveExperiment:
        """Return the experiment of a proposal, which maps knobs to numbers.

        Raises:
            DeltaRefused: if the proposal is no delta of this space, or gives no valid experiment.
        """
        return self.apply(ConfigDelta.parse(proposal, self.knobs))

    @property
    def json_schema(self) -> Document:
        """JSON Schema of a delta."""
        properties = {
            knob.name: {
                "type": "integer" if knob.is_whole else "number",
                "minimum": knob.low,
                "maximum": knob.high,
                "default": self.base_values[knob.name],
            }
            for knob in self.knobs
        }
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "ConfigDelta",
            "type": "object",
            "properties": properties,
            "additionalProperties": False,
        }


def base_experiment(mode: SearchMode) -> ExperimentSpec:
    """Return the default base: PPO on plain logits with the shipped settings, or the cufolio agent.

    A setting outside the bounds, such as one epoch, is clipped where the space is made.
    """
    is_classical = mode == SearchMode.CUFOLIO_ONLY
    return ExperimentSpec(
        name=f"research-{mode.replace('_', '-')}",
        agent=Cufolio() if is_classical else PpoAgent(total_timesteps=TIMESTEPS),
    )


def search_space(mode: SearchMode, base: ExperimentSpec | None = None) -> SearchSpace:
    """Return the space of a mode's knobs around an experiment, by default around the mode's own.

    Raises:
        ValueError: if the experiment lacks a knob of the mode, or leaves one no room.
    """
    base = base or base_experiment(mode)
    knobs, notices = _cap_position(KNOBS[mode], base)
    if mode == SearchMode.UNIFIED and not isinstance(base.pipeline.allocator, CufolioAllocator):
        notices.append(f"pipeline.allocator is cufolio in place of {base.pipeline.allocator.kind}: unified varies it")
        allocator = CufolioAllocator(max_position_pct=min(knob.high for knob in knobs if knob.name == MAX_POSITION))
        base = _with_values(base, {"pipeline.allocator": allocator.model_dump(mode="json")})
    space = SearchSpace.around(base, mode, knobs, notices)
    before, after = (
        f"{agent.n_envs} portfolios of {agent.n_steps} steps" if isinstance(agent, ClippedLearner) else ""
        for agent in (base.agent, space.base.agent)
    )
    if before == after:
        return space
    return replace(space, notices=(*notices, f"a rollout of {before} becomes one of {after}, as n_steps prescribes"))


def _cap_position(knobs: tuple[Knob, ...], base: ExperimentSpec) -> tuple[tuple[Knob, ...], list[str]]:
    """Lower the upper bound of the position knob to the base's risk limit, with a notice."""
    limit = base.pipeline.risk_limits.max_position
    knob = next((knob for knob in knobs if knob.name == MAX_POSITION), None)
    if knob is None or limit >= knob.high:
        return knobs, []
    if limit <= knob.low:
        raise ValueError(
            f"{knob.name} is searched from {knob.low:g}, but pipeline.risk_limits.max_position of {base.name} is "
            f"{limit:g}; raise it, or choose the mode {SearchMode.PPO_ONLY}"
        )
    notice = (
        f"{knob.name} is searched up to {limit:g} in place of {knob.high:g}: the base's "
        "pipeline.risk_limits.max_position, above which compliance stops a plan"
    )
    return tuple(replace(other, high=limit) if other is knob else other for other in knobs), [notice]


def deciding_parts(spec: ExperimentSpec) -> tuple[Component, ...]:
    """Parts of an experiment that decide an account on given data and folds by a given seed."""
    return spec.market, spec.environment, spec.agent, spec.pipeline


def configuration_hash(spec: ExperimentSpec, refused: Mapping[str, float] | None = None) -> str:
    """SHA-256 of the parts of an experiment that decide an account, 64 hexadecimal digits.

    Args:
        spec: of a trial, a base or a run; name, seeds, windows and baselines do not count.
        refused: values of knobs that give no valid experiment around this one, as a configuration of their own.
    """
    content = [*map(canonical_json, deciding_parts(spec)), json.dumps(refused, sort_keys=True)]
    return hashlib.sha256("|".join(content).encode()).hexdigest()


def numbers_of(spec: ExperimentSpec) -> dict[str, float]:
    """Numbers of an experiment by dotted path."""
    values = leaves(spec.model_dump(mode="json"))
    return {path: value for path, value in values if isinstance(value, int | float) and not isinstance(value, bool)}


def _fit_batches(wanted: Mapping[str, Any], *, counts_rollout: bool) -> dict[str, int]:
    """Lower the steps of a rollout and the batch, by dotted path; empty if the agent has no batches."""
    if not wanted.keys() >= set(ROLLOUT_PATHS):
        return {}
    n_steps = wanted[N_STEPS] // WHOLE * WHOLE if counts_rollout else wanted[N_STEPS]
    rollout = n_steps if counts_rollout else n_steps * wanted[N_ENVS]
    most = min(wanted[BATCH_SIZE], rollout)
    return {N_STEPS: n_steps, BATCH_SIZE: next(size for size in range(most, 0, -1) if rollout % size == 0)}


def _split_rollout(rollout: int) -> dict[str, int]:
    """Share a rollout among the most portfolios, a power of two, that leave each the fewest steps allowed."""
    sizes = (2**power for power in range(MAX_PORTFOLIOS.bit_length()))
    n_envs = max(size for size in sizes if rollout % size == 0 and rollout // size >= MIN_STEPS)
    return {N_ENVS: n_envs, N_STEPS: rollout // n_envs}


def _with_values(base: ExperimentSpec, values: Mapping[str, Any]) -> ExperimentSpec:
    """Validate the base's document with other values at dotted paths; `model_copy` would skip validators."""
    document: Document = base.model_dump(mode="json")
    for path, value in values.items():
        document = replace_value(document, path.split("."), value)
    return ExperimentSpec.model_validate(document)
