"""Documents of preference pairs."""

from datetime import date
from pathlib import Path

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.feedback.check import TuningCheck


class ExportedPairs(Document):
    """Preference pairs of a run written for TRL."""

    experiment: str
    run_id: str
    n_rows: int
    n_left_out: int  # of the hold-out
    file: Path


class ExtractedPairs(Document):
    """Preference pairs of a run, and what they can tell."""

    experiment: str
    run_id: str
    n_pairs: int
    n_held_out: int
    n_of_people: int
    n_won: int  # counterfactual pairs in which the weights of the policy are the chosen ones
    n_trained: int  # outside the hold-out
    n_decisions: int  # sessions of the pairs that a tuned policy is reported on
    half_width: float | None  # of the 95 % interval to expect of an AUC of 0.5; null without such pairs
    n_missing: int  # sessions to tell 0.55 from 0.5


class CalibrationFacts(Document):
    """Pairs with similar predictions."""

    n_pairs: int
    predicted: float  # mean probability that the first portfolio is the chosen one
    observed: float


class RejectedWinner(Document):
    """Decision of a person whose rejected side the market preferred."""

    session: date
    decision_id: str
    margin: float  # difference of net returns over five sessions


class TuningFacts(Document):
    """Check of a tuned run on held-out pairs."""

    experiment: str
    run_id: str
    start: str  # run whose policies were tuned
    auc: float  # 0.5 is chance
    auc_low: float
    auc_high: float
    accuracy: float
    n_pairs: int
    n_decisions: int
    n_missing: int
    auc_before: float | None  # of the check before
    kl: float  # mean divergence from the start, nats a decision
    passed: bool
    sentence: str
    notes: tuple[str, ...]
    calibration: tuple[CalibrationFacts, ...]
    rejected_winners: tuple[RejectedWinner, ...]
    picture: Path


def check_document(check: TuningCheck, picture: Path) -> TuningFacts:
    """Describe the check of a tuned run."""
    auc = check.auc
    return TuningFacts.of(
        check,
        auc=auc.auc,
        auc_low=auc.low,
        auc_high=auc.high,
        accuracy=auc.accuracy,
        n_pairs=auc.n_pairs,
        n_decisions=auc.n_decisions,
        passed=auc.is_above_chance,
        calibration=tuple(CalibrationFacts(**vars(row)) for row in check.calibration),
        rejected_winners=tuple(RejectedWinner(**row) for row in check.rejected_winners.to_dicts()),
        picture=picture,
    )
