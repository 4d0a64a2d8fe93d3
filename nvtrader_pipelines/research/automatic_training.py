"""Experiments that `nvtrader ui` trains by itself, and why it leaves the others alone."""

from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.research.hand_over import judged_policies
from nvtrader_pipelines.runs.market_state import has_panel
from nvtrader_pipelines.runs.registration import plan_problem, read_unarchived_experiments
from nvtrader_pipelines.runs.training_time import long_trainings
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.store import Store


def select_automatic(store: Store) -> tuple[list[ExperimentSpec], dict[str, str]]:
    """Experiments that may train without a person, and why each other file or experiment is skipped.

    A draft becomes an experiment by an edit, or by its first run by hand.
    """
    experiments, known = read_unarchived_experiments(store), set(store.ledger.versions()["partition_key"])
    skipped = {path.name: problem for path, problem in experiments.problems.items()}
    drafts = [spec for spec in experiments.specs if spec.partition_key in experiments.drafts - known]
    skipped |= {
        spec.name: f"a draft trains once its file is edited, or by hand: `nvtrader experiments run {spec.name}`"
        for spec in drafts
    }
    specs = {spec.name: spec for spec in experiments.specs if spec not in drafts}
    skipped |= {
        name: f"{training.sentence}; use `nvtrader experiments run {name}`"
        for name, training in {
            training.experiment: training for training in long_trainings(store, list(specs.values()))
        }.items()
        if len(judged_policies(store, specs[name])) < len(specs[name].seeds)  # a search's winner has its policies
    }
    return [spec for name, spec in specs.items() if name not in skipped], skipped


def training_message(store: Store) -> str:
    """Describe what the server of `nvtrader ui` trains by itself, and what it leaves to a person."""
    try:
        specs, skipped = select_automatic(store)
        done = set(store.ledger.runs(with_deleted=True)["partition_key"])
        new = [spec for spec in specs if not done.issuperset(variant.partition_key for variant in spec.variants())]
        if is_built := has_panel(store):
            skipped |= {spec.name: problem for spec in new if (problem := plan_problem(store, spec))}
    except StorageError as error:
        return f"`nvtrader ui` cannot train now: {error}"
    names = ", ".join(spec.name for spec in new if spec.name not in skipped)
    when = "" if is_built else " once the market is built"
    trains = (
        f"`nvtrader ui` trains the experiments without a run{when}: {names}" if names else "every experiment has run"
    )
    return "\n".join([trains, *(f"{name} is not trained: {problem}" for name, problem in skipped.items())])
