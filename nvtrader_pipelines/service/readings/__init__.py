"""Readings of charts in four to six sentences, computed from their rows."""

from nvtrader_pipelines.service.readings.ratio_sentences import ratio_sentences
from nvtrader_pipelines.service.readings.training_sentences import training_sentences
from nvtrader_pipelines.service.readings.trial_sentences import trial_sentences

READINGS = {  # by kind of chart
    "training_curve": training_sentences,
    "autoresearch": trial_sentences,
    "ratio_curve": ratio_sentences,
}
