from nvtrader_pipelines.market.sources import SampleSource


def test_sample_delivers_one_reproducible_file_of_twenty_names():
    (delivery,) = SampleSource().deliveries(())
    (again,) = SampleSource().deliveries(())
    rows = delivery.read().rows
    assert (delivery.source, delivery.digest) == ("sample", again.digest)
    assert rows["symbol"].n_unique() == 20
    assert (rows["date"].min(), rows["date"].max(), len(rows)) == ("1990-01-02", "2022-12-28", 166_260)


def test_sample_has_adjusted_closes_only():
    (delivery,) = SampleSource().deliveries(())
    rows = delivery.read().rows
    assert rows["close"].equals(rows["adj_close"])
    assert rows.select("open", "high", "low", "volume").null_count().row(0) == (len(rows),) * 4
