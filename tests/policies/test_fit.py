from nvtrader_pipelines.policies.fit import CURVE_POINTS, thin


def test_a_long_curve_is_thinned_to_its_limit_with_both_ends():
    points = [(i, float(i)) for i in range(1000)]
    kept = thin(points, CURVE_POINTS)
    assert len(kept) == CURVE_POINTS
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert thin(points[:7], CURVE_POINTS) == points[:7]
