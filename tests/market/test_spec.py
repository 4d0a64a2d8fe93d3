from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from nvtrader_pipelines.market.sources import LandingSource, MarketSpec, SampleSource, YahooSource


def test_default_sources_are_sample_and_landing_zone():
    assert MarketSpec().sources == (SampleSource(), LandingSource())


def test_source_is_selected_by_kind():
    spec = MarketSpec.model_validate({"sources": [{"kind": "yahoo", "symbols": ["SPY"], "first": "2010-01-01"}]})
    assert isinstance(spec.sources[0], YahooSource)


@pytest.mark.parametrize("sources", [[], [{"kind": "bloomberg"}], [{"kind": "sample", "symbols": ["A"]}]])
def test_invalid_sources_are_refused(sources):
    with pytest.raises(ValidationError):
        MarketSpec.model_validate({"sources": sources})


def test_shipped_market_file_equals_the_defaults():
    text = (Path(__file__).parents[2] / "data" / "market.yaml").read_text(encoding="utf-8")
    assert MarketSpec.model_validate(yaml.safe_load(text)) == MarketSpec()
