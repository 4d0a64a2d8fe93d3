"""Feedback: preference pairs of an experiment, and policies that are tuned to them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from nvtrader_pipelines.service.operations.arguments import OUTPUT, Judge, Yes
from nvtrader_pipelines.service.operations.experiments import Experiments
from nvtrader_pipelines.service.operations.operation import Family, operation
from nvtrader_pipelines.service.output_paths import require_file_path

if TYPE_CHECKING:
    import polars as pl

    from nvtrader_pipelines.experiments.sealed_run import SealedRun
    from nvtrader_pipelines.runs.run_document import SummaryFigures
    from nvtrader_pipelines.service.documents.preference_facts import ExportedPairs, ExtractedPairs, TuningFacts

Experiment = Annotated[str, Field(description="Experiment (its latest run) or beginning of a run's id.")]


class Feedback(Family):
    """Preference pairs: extract, export, tune a policy to them, check it."""

    command = "preferences"
    examples = (
        "nvtrader preferences pairs ppo-growth",
        "nvtrader preferences train ppo-growth",
        "nvtrader preferences check ppo-growth",
    )

    @operation("nvtrader preferences pairs ppo-growth", writes=True)
    def pairs(self, experiment: Experiment) -> "ExtractedPairs":
        """Extract the preference pairs of a run, and say what they can tell.

        Candidates of each fold's training are walked once, which takes half a minute on the sample; decisions of people
        and their outcomes are read each time.

        Raises:
            NotFoundError: if there is no such run.
        """
        from nvtrader_pipelines.feedback.decisions import extract_decisions
        from nvtrader_pipelines.feedback.outcomes import write_outcomes
        from nvtrader_pipelines.feedback.pairs import require_pairs, write_preference_pairs
        from nvtrader_pipelines.preferences.holdout_auc import readiness
        from nvtrader_pipelines.runs.lifecycle import now
        from nvtrader_pipelines.service.documents.preference_facts import ExtractedPairs

        run = self._sealed(experiment)
        decided, _ = extract_decisions(self.store)
        write_outcomes(self.store, decided, now())
        counts = write_preference_pairs(self.store, run)
        ready = readiness(require_pairs(self.store, run))
        return ExtractedPairs(
            experiment=run.experiment,
            run_id=run.run_id,
            **vars(counts),
            **{**vars(ready), "half_width": ready.half_width if ready.n_decisions else None},
        )

    @operation("nvtrader preferences train ppo-growth", "nvtrader preferences train ppo-growth --yes", is_long=True)
    def train(
        self, experiment: Experiment, *, yes: Yes = False, judge: Judge = True
    ) -> "Annotated[pl.DataFrame, SummaryFigures]":
        """Tune the policies of a run to its preference pairs, judge them like any run, and check them.

        It writes data/experiments/EXPERIMENT-dpo.yaml: the run's experiment with the agent dpo, which names the run and
        the digest of the pairs. The same pairs continue or show the same run.

        Raises:
            StorageError: if there is no such run, its agent cannot be tuned, or it has no pairs to train on.
            PipelineError: if a step fails.
        """
        name = self.write_tuning(experiment)
        rows = Experiments(self.opened).materialize(name, yes=yes, judge=judge)
        self.check(name)
        return rows

    @operation("nvtrader preferences check ppo-growth", "nvtrader preferences check ppo-growth-dpo --json", writes=True)
    def check(self, experiment: Experiment) -> "TuningFacts":
        """Check a tuned run on held-out pairs: AUC with its interval, calibration, drift, rejected winners, a picture.

        Raises:
            StorageError: if there is no such run, or it was never tuned.
        """
        from nvtrader_pipelines.feedback.check import check_tuning
        from nvtrader_pipelines.feedback.tuning import tuned_run
        from nvtrader_pipelines.figures.tuning_figure import tuning_figure
        from nvtrader_pipelines.runs.lifecycle import now
        from nvtrader_pipelines.service.documents.preference_facts import check_document
        from nvtrader_pipelines.storage.files import write_picture

        check = check_tuning(self.store, tuned_run(self.store, self._sealed(experiment)), now())
        path = self.store.home.pictures / "dpo_policy" / f"{check.experiment}.png"
        title = f"{check.experiment}: tuned to preference pairs"
        write_picture(path, tuning_figure(check.epochs, check.auc, check.calibration, title))
        return check_document(check, path)

    @operation(
        "nvtrader preferences export ppo-residual",
        "nvtrader preferences export ppo-residual -o pairs.parquet --holdout",
    )
    def export(
        self,
        experiment: Experiment,
        *,
        output: Annotated[
            str | Path | None,
            Field(description="File to write, .jsonl or .parquet; default: exports/EXPERIMENT-pairs.jsonl."),
            OUTPUT,
        ] = None,
        holdout: Annotated[
            bool, Field(description="Also pairs of the hold-out, which are never to be trained on.")
        ] = False,
    ) -> "ExportedPairs":
        """Write preference pairs as text in TRL's preference format, to tune a language model elsewhere.

        The prompt has the session, the held weights and the drawdown, chosen and rejected the target weights; outcomes
        are not in the text.

        Raises:
            StorageError: if there is no such run, or it has no pairs.
            ValueError: if the file cannot be written.
        """
        from nvtrader_pipelines.feedback.pairs import require_pairs
        from nvtrader_pipelines.preferences.preference_export import trl_rows
        from nvtrader_pipelines.service.documents.preference_facts import ExportedPairs
        from nvtrader_pipelines.storage.pair_files import write_export

        run = self._sealed(experiment)
        path = require_file_path(output) if output else self.store.home.exports / f"{run.experiment}-pairs.jsonl"
        pairs = require_pairs(self.store, run)
        rows = trl_rows(pairs, with_holdout=holdout)
        write_export(rows, path)
        return ExportedPairs(
            experiment=run.experiment,
            run_id=run.run_id,
            n_rows=len(rows),
            n_left_out=len(pairs) - len(rows),
            file=path,
        )

    def write_tuning(self, experiment: str) -> str:
        """Write the experiment that tunes the policies of a run to its pairs, and return its name.

        Raises:
            StorageError: if there is no such run, its agent cannot be tuned, or it has no pairs to train on.
        """
        from nvtrader_pipelines.feedback.tuning import tuning_experiment
        from nvtrader_pipelines.storage.specs import store_experiment

        return store_experiment(self.store.home, tuning_experiment(self.store, self._sealed(experiment))).name

    def _sealed(self, experiment: str) -> "SealedRun":
        from nvtrader_pipelines.promotion.eligibility import sealed_run
        from nvtrader_pipelines.promotion.policy_cards import find_policy

        return sealed_run(self.store, find_policy(self.store, experiment))
