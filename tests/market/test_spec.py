from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from nvtrader_pipelines.market.sources import LandingSource, SampleSource, YahooSource
from nvtrader_pipelines.market.spec import MarketSpec


def test_by_default_the_market_is_the_sample_and_the_landing_zone():
    assert MarketSpec().sources == (SampleSource(), LandingSource())


def test_a_source_is_chosen_by_its_kind():
    spec = MarketSpec.model_validate({"sources": [{"kind": "yahoo", "symbols": ["SPY"], "first": "2010-01-01"}]})
    assert isinstance(spec.sources[0], YahooSource)


@pytest.mark.parametrize("sources", [[], [{"kind": "bloomberg"}], [{"kind": "sample", "symbols": ["A"]}]])
def test_no_source_an_unknown_source_and_an_unknown_field_are_refused(sources):
    with pytest.raises(ValidationError):
        MarketSpec.model_validate({"sources": sources})


def test_the_shipped_file_says_what_the_defaults_say():
    text = (Path(__file__).parents[2] / "data" / "market.yaml").read_text(encoding="utf-8")
    assert MarketSpec.model_validate(yaml.safe_load(text)) == MarketSpec()
