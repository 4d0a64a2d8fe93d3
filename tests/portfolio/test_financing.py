import numpy as np
import pytest
from pydantic import ValidationError

from nvtrader_pipelines.portfolio.financing import Financing

DAYS = np.array(["2024-03-27", "2024-03-28", "2024-04-01", "2024-04-02"], dtype="datetime64[D]")  # over Easter


def test_charges_are_yearly_rates_by_calendar_days_over_360():
    charges = Financing(margin_rate=0.072, borrow_fee=0.0036).charges(DAYS)
    np.testing.assert_allclose(charges[:, 0], [0.0, 0.0002, 0.0008, 0.0002], rtol=1e-15)
    np.testing.assert_allclose(charges[:, 1], [0.0, 0.00001, 0.00004, 0.00001], rtol=1e-15)


def test_charges_of_360_days_sum_to_the_rate():
    days = np.arange("2023-01-01", "2023-12-28", dtype="datetime64[D]")
    np.testing.assert_allclose(Financing(margin_rate=0.06).charges(days)[:, 0].sum(), 0.06, rtol=1e-12)


@pytest.mark.parametrize("field", ["margin_rate", "borrow_fee"])
def test_negative_rate_is_refused(field):
    with pytest.raises(ValidationError):
        Financing(**{field: -0.01})
