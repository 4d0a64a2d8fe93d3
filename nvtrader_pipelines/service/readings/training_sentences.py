"""Reading of a learning curve: gain, slope, plateau, best, seeds, and the next thing to try."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import floor, log10, sqrt

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.sharpe.lead import t_quantile
from nvtrader_pipelines.service.readings.chart_rows import N_ERRORS, Row, label, number, require_two

MIN_POINTS = 9  # below which noise cannot be told from a trend
LONG = 0.25  # share of the training that is a plateau
ROUNDING = 1e-12  # share of the largest reward that is no noise
RECORD = 3.0 * sqrt(2.0)  # standard errors of a smoothed point by which a new best must exceed the last
LEVEL = 0.025  # of each side of a slope's interval
Line = dict[int, float]  # mean reward by timesteps


@dataclass(frozen=True)
class Slope:
    """Slope of a straight line through points, by least squares."""

    value: float  # over the whole range of the points
    standard_error: float  # from the residuals
    n_points: int

    @property
    def direction(self) -> int:
        """1 or -1 where the slope is told from noise, else 0."""
        return int(np.sign(self.value)) * (abs(self.value) > t_quantile(LEVEL, self.n_points - 1) * self.standard_error)


@dataclass(frozen=True)
class LearningCurve:
    """Mean reward per step over timesteps, averaged over seeds."""

    timesteps: NDArray[np.float64]
    rewards: NDArray[np.float64]
    seeds: tuple[str, ...]
    ends: tuple[float, ...]  # means over the last third, by seed
    unit: str

    @property
    def third(self) -> int:
        """Points of a third."""
        return max(1, len(self.rewards) // 3)

    @cached_property
    def noise(self) -> float:
        """Standard deviation of a point, from second differences, which have no trend."""
        deviation = np.sqrt(np.mean(np.diff(self.rewards, 2) ** 2) / 6.0)
        return max(float(deviation), self.rounding)

    @property
    def rounding(self) -> float:
        """Noise of sums of the rewards as floating-point numbers."""
        return ROUNDING * float(np.abs(self.rewards).max())

    @property
    def gain(self) -> tuple[float, float]:
        """Mean over the last third less that over the first third, and its standard error."""
        difference = self.rewards[-self.third :].mean() - self.rewards[: self.third].mean()
        return float(difference), self.noise * sqrt(2.0 / self.third)

    @property
    def window(self) -> int:
        """Points of a smoothed point."""
        return max(1, len(self.rewards) // 10)

    @cached_property
    def smoothed(self) -> NDArray[np.float64]:
        """Means over a window that ends at each point."""
        return np.convolve(self.rewards, np.full(self.window, 1.0 / self.window), "valid")

    @property
    def margin(self) -> float:
        """Difference of smoothed points that noise hardly makes."""
        return RECORD * self.noise / sqrt(self.window)

    def steps(self, position: int) -> float:
        """Timesteps of a smoothed point."""
        return float(self.timesteps[position + self.window - 1])

    @cached_property
    def last_record(self) -> int:
        """Smoothed point that last exceeded the earlier best by more than noise."""
        record = 0
        for position, reward in enumerate(self.smoothed):
            if reward > self.smoothed[record] + self.margin:
                record = position
        return record

    @property
    def plateau(self) -> float:
        """Share of the training since the last record."""
        return 1.0 - self.steps(self.last_record) / float(self.timesteps[-1])

    @cached_property
    def slope(self) -> Slope:
        """Slope over the last third."""
        n = max(4, self.third)
        steps, rewards = self.timesteps[-n:], self.rewards[-n:]
        places = (steps - steps[0]) / (steps[-1] - steps[0])
        centered = places - places.mean()
        square = float(centered @ centered)
        value = float(centered @ rewards) / square
        residuals = rewards - rewards.mean() - value * centered
        error = sqrt(float(residuals @ residuals) / (n - 2) / square)
        return Slope(value, max(error, self.rounding), n)


def training_sentences(rows: Sequence[Row], facts: Row) -> list[str]:
    """Read a learning curve.

    Args:
        rows: points with mean_reward, timesteps and seed; without timesteps they count in order.
        facts: `total_timesteps`, as planned.

    Raises:
        TooFewRowsError: if no seed has two points.
    """
    curve = learning_curve(rows)
    if len(curve.rewards) < MIN_POINTS:
        return _short_curve(curve)
    total = number(facts, "total_timesteps") or number(rows[-1], "total_timesteps") or 0.0
    seeds = [_seed_spread(curve)] if len(curve.seeds) > 1 else []
    return [_gain(curve), _slope(curve), _plateau(curve), _best(curve), *seeds, _next_step(curve, total)]


def learning_curve(rows: Sequence[Row]) -> LearningCurve:
    """Mean over seeds at the timesteps that all have; the longest seed alone where they share less than half.

    Raises:
        TooFewRowsError: if no seed has two points.
    """
    points = [(row, reward) for row in rows if (reward := number(row, "mean_reward")) is not None]
    has_steps = all((number(row, "timesteps") or 0.0) >= 1.0 for row, _ in points)
    lines: dict[str, Line] = {}
    for row, reward in points:
        line = lines.setdefault(label(row.get("seed")), {})
        line[int(row["timesteps"]) if has_steps else len(line) + 1] = reward
    longest = max(lines, key=lambda seed: len(lines[seed]), default="")
    shared = set.intersection(*map(set, lines.values())) if lines else set()
    if len(shared) < 0.5 * len(lines.get(longest, ())):
        lines, shared = {longest: lines[longest]}, set(lines[longest])
    require_two(len(shared), "training_curve", "mean_reward")
    steps = sorted(shared)
    rewards = np.array([[line[step] for step in steps] for line in lines.values()])
    ends = rewards[:, -max(1, len(steps) // 3) :].mean(axis=1)
    unit = "steps" if has_steps else "points"
    return LearningCurve(np.array(steps, dtype=float), rewards.mean(axis=0), tuple(lines), tuple(ends.tolist()), unit)


def _short_curve(curve: LearningCurve) -> list[str]:
    rewards, best = curve.rewards, int(curve.rewards.argmax())
    return [
        f"From the first to the last point the mean reward per step changed by {rewards[-1] - rewards[0]:+.3g}.",
        f"No slope and no plateau can be told from noise before {MIN_POINTS} points of a seed.",
        f"The best is {rewards[best]:.3g}, at {_at(curve, curve.timesteps[best])}; the last has {rewards[-1]:.3g}.",
        "Next: wait for more points before you stop or change the training.",
    ]


def _gain(curve: LearningCurve) -> str:
    gain, error = curve.gain
    verdict = "clear of noise" if abs(gain) > N_ERRORS * error else "no more than noise"
    least = N_ERRORS * sqrt(2.0) * curve.noise
    return (
        f"Training changed the mean reward per step by {_figure(gain, error, '+')} ± {_figure(error, error)} from the "
        f"first to the last third, {verdict}; two single points that differ by less than {least:.2g} say nothing."
    )


def _slope(curve: LearningCurve) -> str:
    slope, span = curve.slope, _span(curve)
    unit = 10 ** floor(log10(span))
    value, error = slope.value / span * unit, slope.standard_error / span * unit
    text = f"{_figure(value, error, '+')} ± {_figure(error, error)} per {unit:,} {curve.unit}"
    if slope.direction == 0:
        return f"Over the last third no slope can be told from noise: {text}."
    return f"Over the last third the reward {'still rises' if slope.direction > 0 else 'falls'}: {text}."


def _plateau(curve: LearningCurve) -> str:
    smooth = f"smoothed over {curve.window} points" if curve.window > 1 else "not smoothed"
    if curve.last_record == 0:
        return f"The curve, {smooth}, has never been above its beginning by more than noise."
    beginning = "Plateau" if curve.plateau >= LONG and curve.slope.direction <= 0 else "No plateau yet"
    return (
        f"{beginning}: the curve, {smooth}, last set a new best beyond noise at "
        f"{_at(curve, curve.steps(curve.last_record))}; {curve.plateau:.0%} of the training so far came after it."
    )


def _best(curve: LearningCurve) -> str:
    best = int(curve.smoothed.argmax())
    behind = float(curve.smoothed[best] - curve.smoothed[-1])
    end = (
        f"the end is {behind:.2g} lower, more than noise: an earlier policy was better"
        if behind > curve.margin
        else "the end is within noise of it, so no earlier policy is shown to be better"
    )
    value = _figure(float(curve.smoothed[best]), curve.noise)
    return f"The smoothed best is {value} at {_at(curve, curve.steps(best))}; {end}."


def _seed_spread(curve: LearningCurve) -> str:
    low, high = min(curve.ends), max(curve.ends)
    worst, best = (curve.seeds[curve.ends.index(end)] for end in (low, high))
    verdict = "more" if high - low > abs(curve.gain[0]) else "less"
    return (
        f"Over the last third seed {best} averages {_figure(high, high - low)} and seed {worst} "
        f"{_figure(low, high - low)}: the seeds differ by {high - low:.2g}, {verdict} than training changed."
    )


def _next_step(curve: LearningCurve, total: float) -> str:
    gain, error = curve.gain
    left, slope = total - curve.timesteps[-1], curve.slope
    if curve.unit == "steps" and left > 0.01 * total:
        return f"Next: let it run, {left:,.0f} of {total:,.0f} steps are left; judge the plateau at the end."
    if slope.direction < 0:
        return "Next: lower the learning rate, or stop where the smoothed best is: the reward falls at the end."
    if slope.direction > 0 and curve.plateau < 0.5:
        return (
            f"Next: train longer; at this slope another {_span(curve):,.0f} {curve.unit} add {slope.value:.2g}. "
            "Compare Sharpe ratios on validation: reward on the training sessions is no proof."
        )
    if gain <= N_ERRORS * error:
        return (
            "Next: more of the same will not help, since training has gained nothing that shows; try another learning "
            "rate, or a larger batch against the noise."
        )
    if curve.plateau >= 0.5:
        return (
            f"Next: stop at {_at(curve, curve.steps(curve.last_record))}, which saves {curve.plateau:.0%} of the "
            "training time; for more reward try a lower learning rate or more entropy, not more steps."
        )
    return (
        f"Next: noise hides any slope below {N_ERRORS * slope.standard_error:.1g} over the last third; a batch four "
        "times as large, or four times the seeds, halves that."
    )


def _span(curve: LearningCurve) -> float:
    """Timesteps that the slope is over."""
    return float(curve.timesteps[-1] - curve.timesteps[-curve.slope.n_points])


def _at(curve: LearningCurve, steps: float) -> str:
    return f"{steps:,.0f} steps" if curve.unit == "steps" else f"point {steps:,.0f}"


def _figure(value: float, resolution: float, sign: str = "") -> str:
    """Format a value to two digits of its resolution, at most four of its own."""
    digits = 1 - floor(log10(max(resolution, 1e-3 * abs(value), 1e-9)))
    return f"{value:{sign}z.{max(0, digits)}f}"
