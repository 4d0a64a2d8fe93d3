import dataclasses
import datetime as dt

import pytest

from nvtrader_pipelines.experiments.designs import AblationDesign, BestOfNDesign
from nvtrader_pipelines.experiments.plan import SURVIVORSHIP
from tests.experiments.small import EXPERIMENT, planned
from tests.markets import synthetic_panel
from tests.policies.small import SPEC


def test_the_run_id_is_that_of_the_spec_and_the_markets_content(plan):
    assert planned().run_id == plan.run_id
    assert len(plan.run_id) == 16
    assert planned(EXPERIMENT.model_copy(update={"seeds": (0, 1, 2)})).run_id != plan.run_id
    assert planned(panel=synthetic_panel(700, 3, seed=1)).run_id != plan.run_id


def test_a_run_warns_of_what_its_reader_must_know():
    assert planned().warnings == ()
    sample = dataclasses.replace(synthetic_panel(700, 3, opens=False), source="sample")
    survivors, fills = planned(panel=sample).warnings
    assert survivors == SURVIVORSHIP
    assert fills == "orders fill at the next_close, not the next_open asked for: the market has no opens"
    cheating = EXPERIMENT.model_copy(update={"environment": SPEC.model_copy(update={"fill": "same_close"})})
    assert "cheat-on-close" in planned(cheating).warnings[0]


def test_the_window_of_a_run_is_that_of_its_tests(plan):
    first, last = plan.window
    assert isinstance(first, dt.date)
    assert (first, last) == tuple(
        plan.panel.sessions[i].item() for i in (plan.folds[0].test_first, plan.folds[1].test_last)
    )


def test_a_task_is_one_fold_and_seed_on_the_folds_training_window(plan):
    task = plan.task((1, 5), b"state")
    fold = plan.folds[1]
    assert (task.fold, task.seed, task.window) == (1, 5, (fold.train_first, fold.train_last))
    assert (task.sample_rate, task.resume_from) == (EXPERIMENT.training_sample_rate, b"state")


def test_holding_out_every_training_session_is_refused():
    greedy = planned(EXPERIMENT.model_copy(update={"design": BestOfNDesign(validation_sessions=252)}))
    with pytest.raises(ValueError, match="252 and a purge of 6 are held out; hold fewer out"):
        greedy.task(greedy.keys[0])


def test_an_ablation_is_refused_with_the_names_of_its_variants():
    ablation = EXPERIMENT.model_copy(update={"design": AblationDesign(field="agent.gamma", values=(0.8, 0.9))})
    with pytest.raises(ValueError, match=r"run its variants: tiny-gamma-0-8, tiny-gamma-0-9"):
        planned(ablation)
