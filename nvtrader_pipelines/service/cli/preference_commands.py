"""`nvtrader preferences`: preference pairs of an experiment, and policies that are tuned to them."""

from nvtrader_pipelines.service.cli.experiment_commands import run_experiments
from nvtrader_pipelines.service.cli.family_commands import family_app
from nvtrader_pipelines.service.cli.output import Format
from nvtrader_pipelines.service.operations.experiments import Experiments
from nvtrader_pipelines.service.operations.feedback import Feedback


def train(feedback: Feedback, form: Format, *, experiment: str, **options: bool) -> None:
    """Tune, judge and check policies, and write the results."""
    from nvtrader_pipelines.service.cli.pages.preference_pages import print_check

    name = feedback.write_tuning(experiment)
    run_experiments(Experiments(feedback.opened), form, experiments=(name,), **options)
    check = feedback.check(name)
    if form is Format.TABLE:
        print_check(check)


app = family_app(Feedback, "preference_pages", courses={"train": train})
