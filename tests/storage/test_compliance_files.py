"""Compliance files: valid ones are read, invalid ones are refused."""

import gzip
from datetime import date
from importlib.util import find_spec
from pathlib import Path

import pytest

from nvtrader_pipelines.execution.compliance import tightest_limits
from nvtrader_pipelines.portfolio.pipeline import RiskLimits
from nvtrader_pipelines.storage.compliance_files import read_compliance, read_limits, require_not_looser
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home

SHIPPED = Home(Path(__file__).parents[2])
GICS = {  # the eleven sectors of the Global Industry Classification Standard, MSCI and S&P, 2023
    "Communication Services", "Consumer Discretionary", "Consumer Staples", "Energy", "Financials", "Health Care",
    "Industrials", "Information Technology", "Materials", "Real Estate", "Utilities",
}  # fmt: skip


@pytest.fixture
def desk(home):
    """Function that writes a compliance file."""
    home.compliance.mkdir()

    def write(name, content):
        (home.compliance / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    return write


def test_missing_files_give_default_limits_and_empty_tables(home):
    assert read_limits(home) == RiskLimits()
    assert (dict(read_compliance(home).sectors), list(read_compliance(home).loss_sales)) == ({}, [])


def test_limits_left_out_have_their_defaults(home, desk):
    desk("limits.yaml", "max_position: 0.2\nrestricted: [GE]\n")
    assert read_limits(home) == RiskLimits(max_position=0.2, restricted=("GE",))


def test_tables_are_read_without_blank_lines_and_spaces(home, desk):
    desk("sectors.csv", "symbol,sector\nA,one\n\n B , two words \n")
    desk("loss_sales.csv", "symbol,date,note\nA,2022-03-01,after earnings\nA,2022-03-02,\n")
    data = read_compliance(home)
    assert data.sectors == {"A": "one", "B": "two words"}
    assert data.loss_sales == (("A", date(2022, 3, 1)), ("A", date(2022, 3, 2)))


def test_spellings_of_a_sector_become_the_first_one(home, desk):
    desk("sectors.csv", "symbol,sector\nA,Health Care\nB,health care\nC,HEALTH  CARE\nD,Energy\n")
    assert read_compliance(home).sectors == {"A": "Health Care", "B": "Health Care", "C": "Health Care", "D": "Energy"}


def test_table_without_notes_and_with_byte_order_mark_is_read(home, desk):
    desk("loss_sales.csv", b"\xef\xbb\xbfsymbol,date\r\nA,2022-03-01\r\n")
    assert read_compliance(home).loss_sales == (("A", date(2022, 3, 1)),)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("sectors.csv", "symbol,industry\nA,one\n", "line 1: the columns must be symbol,sector, but are symbol,indus"),
        ("sectors.csv", "", "line 1: the columns must be symbol,sector, but are"),
        ("sectors.csv", "A,one\n", "line 1: the columns must be symbol,sector, but are A,one"),
        ("sectors.csv", "symbol,sector,note\nA,one,x\n", "line 1: the columns must be symbol,sector, but are"),
        ("sectors.csv", "symbol,sector\nA,one\nB,two\nA,two\n", "line 4: A already has a sector"),
        ("sectors.csv", "symbol,sector\nA,\n", "line 2: A has no sector"),
        ("sectors.csv", "symbol,sector\n,one\n", "line 2: there must be 2 values, the first a symbol"),
        ("sectors.csv", "symbol,sector\nA\n", "line 2: there must be 2 values, the first a symbol"),
        ("sectors.csv", "symbol,sector\nA,one,more\n", "line 2: there must be 2 values, the first a symbol"),
        ("sectors.csv", 'symbol,sector\nA,"one\n', "cannot be read as a CSV file in UTF-8"),
        ("sectors.csv", b"symbol,sector\nA,\xff\n", "cannot be read as a CSV file in UTF-8"),
        ("loss_sales.csv", "symbol,date,why\nA,2022-01-03,x\n", "the columns must be symbol,date[,note], but are"),
        (
            "loss_sales.csv",
            "symbol,date\nA,03/01/2022\n",
            "line 2: the date must be written YYYY-MM-DD, but is '03/01/20",
        ),
        (
            "loss_sales.csv",
            "symbol,date\nA,20220103\n",
            "line 2: the date must be written YYYY-MM-DD, but is '20220103'",
        ),
        (
            "loss_sales.csv",
            "symbol,date\nA,2022-02-30\n",
            "line 2: the date must be written YYYY-MM-DD, but is '2022-02-",
        ),
        ("loss_sales.csv", "symbol,date\nA,\n", "line 2: the date must be written YYYY-MM-DD, but is ''"),
        (
            "loss_sales.csv",
            "symbol,date\naapl,2022-01-03\n",
            "line 2: the symbol must be in capitals, such as BRK.B, but is",
        ),
        (
            "loss_sales.csv",
            "symbol,date\nA;B,2022-01-03\n",
            "line 2: the symbol must be in capitals, such as BRK.B, but is",
        ),
        (
            "loss_sales.csv",
            "symbol,date,note\nA,2022-01-03,x\nA,2022-01-03,y\n",
            "line 3: the sale of A on 2022-01-03 occurs twice",
        ),
    ],
)
def test_invalid_table_is_refused_with_file_and_line(home, desk, name, content, message):
    desk(name, content)
    with pytest.raises(StorageError) as refusal:
        read_compliance(home)
    assert name in str(refusal.value)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "max_position: 1.5\n",
        "max_positon: 0.2\n",
        "max_position: 0.2\nmax_position: 0.3\n",
        "max_position: [\n",
        "restricted: [aapl]\n",
        "min_net: 0.5\n",
        "min_net: 0.9\nmax_net: 0.5\n",
    ],
)
def test_invalid_limits_are_refused(home, desk, content):
    desk("limits.yaml", content)
    with pytest.raises(StorageError):
        read_limits(home)


@pytest.mark.parametrize("name", ["limits.yaml", "sectors.csv", "loss_sales.csv"])
def test_dangling_symlink_is_refused_rather_than_missing(home, desk, name):
    desk("other", "")
    (home.compliance / name).symlink_to(home.compliance / "missing")
    with pytest.raises(StorageError):
        read_limits(home) if name == "limits.yaml" else read_compliance(home)


@pytest.mark.parametrize(
    ("own", "desk_limits", "message"),
    [
        ({"max_position": 0.3}, {}, "max_position is 0.3, .* 0.25"),
        ({}, {"max_position": 0.1}, "max_position is 0.25, .* 0.1"),
        ({}, {"max_gross": 0.3}, "max_gross is 1.0, .* 0.3"),
        ({"max_net": 0.9}, {"max_net": 0.8}, "max_net is 0.9, .* 0.8"),
        ({"max_gross": 2.0}, {}, "max_gross is 2.0, .* 1.0"),
        ({"max_short": 0.5}, {}, "max_short is 0.5, .* 0.0"),
        ({"min_net": -1.0}, {}, "min_net is -1.0, .* 0.0"),
        ({"wash_sale_days": 10}, {}, "wash_sale_days is 10, .* 30"),
    ],
)
def test_limits_looser_than_the_desk_are_refused_with_both_figures(own, desk_limits, message):
    with pytest.raises(StorageError, match=message):
        require_not_looser(RiskLimits(**own), RiskLimits(**desk_limits))


@pytest.mark.parametrize("own", [{}, {"max_position": 0.1}, {"wash_sale_days": 60}, {"max_sector": 0.9}])
def test_limits_as_tight_as_the_desk_pass(own):
    require_not_looser(RiskLimits(**own), RiskLimits())


def test_desk_file_raises_gross_to_four_and_allows_short_positions(home, desk):
    desk("limits.yaml", "max_gross: 4\nmax_short: 1\nmax_net: 4\nmin_net: -4\n")
    levered = RiskLimits(max_gross=2.0, max_net=2.0, max_short=0.5, min_net=-1.0)
    require_not_looser(levered, read_limits(home))
    assert tightest_limits(levered, read_limits(home)) == levered


def test_every_symbol_of_the_sample_has_a_gics_sector():
    sectors = read_compliance(SHIPPED).sectors
    (found,) = find_spec("skfolio").submodule_search_locations  # importing it would take seconds
    with gzip.open(Path(found) / "datasets" / "data" / "sp500_dataset.csv.gz", "rt") as sample:
        assert list(sectors) == sample.readline().strip().split(",")[1:]
    assert set(sectors.values()) <= GICS
