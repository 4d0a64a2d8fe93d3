"""`nvtrader preferences`: preference pairs of an experiment, and policies that are tuned to them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nvtrader_pipelines.service.cli.command import command
from nvtrader_pipelines.service.cli.experiment_commands import Yes, run_experiments
from nvtrader_pipelines.service.cli.options import Judge, with_examples
from nvtrader_pipelines.service.cli.output import Format, print_line, write_json
from nvtrader_pipelines.service.open_home import open_store
from nvtrader_pipelines.service.output_paths import require_file_path

if TYPE_CHECKING:
    from nvtrader_pipelines.desk.preference_check import TuningCheck
    from nvtrader_pipelines.experiments.sealed_run import SealedRun
    from nvtrader_pipelines.storage.store import Store

app = typer.Typer(
    name="preferences",
    help="Preference pairs: extract, export, tune a policy to them, check it.",
    epilog=with_examples(
        "nvtrader preferences pairs ppo-growth",
        "nvtrader preferences train ppo-growth",
        "nvtrader preferences check ppo-growth",
    ),
    no_args_is_help=True,
)
Experiment = Annotated[
    str, typer.Argument(metavar="EXPERIMENT", help="Experiment (its latest run) or beginning of a run's id.")
]


@command(app.command, "nvtrader preferences pairs ppo-growth", name="pairs")
def extract_pairs(experiment: Experiment, *, as_json: bool) -> None:
    """Extract the preference pairs of a run, and say what they can tell.

    Candidates of each fold's training are walked once, which takes half a minute on the sample; decisions of people and
    their outcomes are read each time.
    """
    from nvtrader_pipelines.desk.decision_outcomes import write_outcomes
    from nvtrader_pipelines.desk.decision_rows import extract_decisions
    from nvtrader_pipelines.desk.preference_pairs import require_pairs, write_preference_pairs
    from nvtrader_pipelines.preferences.pair_order import readiness
    from nvtrader_pipelines.runs.lifecycle import now
    from nvtrader_pipelines.service.cli.pages.preference_pages import print_pairs
    from nvtrader_pipelines.service.documents.preference_facts import ExtractedPairs
    from nvtrader_pipelines.storage.views.publishing import publish

    store = open_store()
    run = _sealed(store, experiment)
    decided, _ = extract_decisions(store)
    write_outcomes(store, decided, now())
    counts = write_preference_pairs(store, run)
    publish(store)
    ready = readiness(require_pairs(store, run))
    document = ExtractedPairs(
        experiment=run.experiment,
        run_id=run.run_id,
        **vars(counts),
        **{**vars(ready), "half_width": ready.half_width if ready.n_decisions else None},
    )
    if as_json:
        write_json(document.model_dump(mode="json"))
    else:
        print_pairs(document)


@command(app.command, "nvtrader preferences train ppo-growth", "nvtrader preferences train ppo-growth --yes")
def train(experiment: Experiment, *, yes: Yes = False, judge: Judge = True, form: Format) -> None:
    """Tune the policies of a run to its preference pairs, judge them like any run, and check them.

    It writes data/experiments/EXPERIMENT-dpo.yaml: the run's experiment with the agent dpo, which names the run and the
    digest of the pairs. The same pairs continue or show the same run.
    """
    from nvtrader_pipelines.desk.preference_check import check_tuning
    from nvtrader_pipelines.desk.preference_training import tuning_experiment
    from nvtrader_pipelines.runs.lifecycle import now
    from nvtrader_pipelines.service.cli.pages.preference_pages import print_check
    from nvtrader_pipelines.storage.specs import store_experiment
    from nvtrader_pipelines.storage.views.publishing import publish

    store = open_store()
    spec = store_experiment(store.home, tuning_experiment(store, _sealed(store, experiment)))
    run_experiments([spec.name], form, yes=yes, judge=judge)
    check = check_tuning(store, store.policies.read_latest(spec.partition_key), now())
    publish(store)
    if form is Format.TABLE:
        print_check(check, draw_tuning(store, check))


@command(app.command, "nvtrader preferences check ppo-growth", "nvtrader preferences check ppo-growth-dpo --json")
def check(experiment: Experiment, *, as_json: bool) -> None:
    """Check a tuned run on held-out pairs: AUC with its interval, calibration, drift, rejected winners, a picture."""
    from nvtrader_pipelines.desk.preference_check import check_tuning
    from nvtrader_pipelines.desk.preference_training import tuned_run
    from nvtrader_pipelines.runs.lifecycle import now
    from nvtrader_pipelines.service.cli.pages.preference_pages import print_check
    from nvtrader_pipelines.service.documents.preference_facts import check_document
    from nvtrader_pipelines.storage.views.publishing import publish

    store = open_store()
    checked = check_tuning(store, tuned_run(store, _sealed(store, experiment)), now())
    publish(store)
    path = draw_tuning(store, checked)
    if as_json:
        write_json(check_document(checked, path).model_dump(mode="json"))
    else:
        print_check(checked, path)


def draw_tuning(store: "Store", check: "TuningCheck") -> Path:
    """Draw a checked training as a picture of the home, and return its path."""
    from nvtrader_pipelines.figures.tuning_figure import tuning_figure
    from nvtrader_pipelines.storage.picture_files import write_picture

    path = store.home.pictures / "dpo_policy" / f"{check.experiment}.png"
    title = f"{check.experiment}: tuned to preference pairs"
    write_picture(path, tuning_figure(check.epochs, check.auc, check.calibration, title))
    return path


def _sealed(store: "Store", experiment: str) -> "SealedRun":
    from nvtrader_pipelines.promotion.eligibility import sealed_run
    from nvtrader_pipelines.promotion.policy_cards import find_policy

    return sealed_run(store, find_policy(store, experiment))


@command(
    app.command,
    "nvtrader preferences export ppo-residual",
    "nvtrader preferences export ppo-residual -o pairs.parquet --holdout",
)
def export(
    experiment: Experiment,
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File to write, .jsonl or .parquet; default: exports/EXPERIMENT-pairs.jsonl."
        ),
    ] = None,
    holdout: Annotated[
        bool, typer.Option("--holdout", help="Also pairs of the hold-out, which are never to be trained on.")
    ] = False,
    as_json: bool,
) -> None:
    """Write preference pairs as text in TRL's preference format, to tune a language model elsewhere.

    The prompt has the session, the held weights and the drawdown, chosen and rejected the target weights; outcomes are
    not in the text.
    """
    from nvtrader_pipelines.desk.preference_pairs import require_pairs
    from nvtrader_pipelines.preferences.preference_export import trl_rows
    from nvtrader_pipelines.service.documents.preference_facts import ExportedPairs
    from nvtrader_pipelines.storage.pair_files import write_export

    store = open_store()
    run = _sealed(store, experiment)
    default = store.home.exports / f"{run.experiment}-pairs.jsonl"
    path = require_file_path(output.expanduser()) if output else default
    pairs = require_pairs(store, run)
    rows = trl_rows(pairs, with_holdout=holdout)
    write_export(rows, path)
    n_rows, n_left_out = len(rows), len(pairs) - len(rows)
    if as_json:
        document = ExportedPairs(
            experiment=run.experiment, run_id=run.run_id, n_rows=n_rows, n_left_out=n_left_out, file=path
        )
        write_json(document.model_dump(mode="json"))
    else:
        print_line(f"wrote {n_rows:,} pairs to {path}; {n_left_out:,} of the hold-out left out")
