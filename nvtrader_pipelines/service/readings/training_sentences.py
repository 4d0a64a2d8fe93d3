"""Reading of a learning curve: gain, slope, plateau, best, seeds, and the next thing to try."""

from collections.abc import Sequence
from math import floor, log10, sqrt
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from nvtrader_pipelines.evaluation.chart_statistics import N_ERRORS, RewardTrend
from nvtrader_pipelines.service.readings.chart_rows import ROWS, ChartRow, Count, Figure, require_two

MIN_POINTS = 9  # below which noise cannot be told from a trend
MIN_SHARED = 0.5  # of the longest seed's points, for a mean over seeds
LONG = 0.25  # share of the training that is a plateau


class ChartPoint(ChartRow):
    """Point of the curve of a seed."""

    seed: Count = 0
    timesteps: Annotated[Count, Field(ge=1)]
    mean_reward: Figure | None  # per step; null where it was not finite
    total_timesteps: Count = 0  # as planned; 0 where the facts have them


class TrainingChart(ChartRow):
    """Learning curve of each seed."""

    rows: Annotated[tuple[ChartPoint, ...], ROWS]
    total_timesteps: Count = 0

    def sentences(self) -> list[str]:
        """Read the mean over seeds.

        Raises:
            ValueError: if no seed has two points.
        """
        seeds, timesteps, rewards = self._align()
        if len(timesteps) < MIN_POINTS:
            return _short_curve(timesteps, rewards.mean(axis=0))
        trend = RewardTrend.of(timesteps, rewards)
        spread = [_seed_spread(seeds, trend)] if len(seeds) > 1 else []
        total = self.total_timesteps or self.rows[-1].total_timesteps
        return [_gain(trend), _slope(trend), _plateau(trend), _best(trend), *spread, _next_step(trend, total)]

    def _align(self) -> tuple[list[int], NDArray[np.float64], NDArray[np.float64]]:
        """Seeds, timesteps (n,) that all have, and rewards (n_seeds, n); the longest seed alone if they share few."""
        lines: dict[int, dict[int, float]] = {}
        for point in self.rows:
            if point.mean_reward is not None:
                lines.setdefault(point.seed, {})[point.timesteps] = point.mean_reward
        longest = max(lines, key=lambda seed: len(lines[seed]), default=0)
        shared = set.intersection(*map(set, lines.values())) if lines else set()
        if len(shared) < MIN_SHARED * len(lines.get(longest, ())):
            lines, shared = {longest: lines[longest]}, set(lines[longest])
        require_two(shared, "mean_reward")
        steps = sorted(shared)
        rewards = np.array([[line[step] for step in steps] for line in lines.values()])
        return list(lines), np.array(steps, dtype=float), rewards


def _short_curve(timesteps: NDArray[np.float64], rewards: NDArray[np.float64]) -> list[str]:
    best = int(rewards.argmax())
    return [
        f"From the first to the last point the mean reward per step changed by {rewards[-1] - rewards[0]:+.3g}.",
        f"No slope and no plateau can be told from noise before {MIN_POINTS} points of a seed.",
        f"The best is {rewards[best]:.3g}, at {timesteps[best]:,.0f} steps; the last has {rewards[-1]:.3g}.",
        "Next: wait for more points before you stop or change the training.",
    ]


def _gain(trend: RewardTrend) -> str:
    value, error = trend.gain.value, trend.gain.error
    verdict = "clear of noise" if trend.gain.sign else "no more than noise"
    least = N_ERRORS * sqrt(2.0) * trend.noise
    return (
        f"Training changed the mean reward per step by {_figure(value, error, '+')} ± {_figure(error, error)} from the "
        f"first to the last third, {verdict}; two single points that differ by less than {least:.2g} say nothing."
    )


def _slope(trend: RewardTrend) -> str:
    unit = 10 ** floor(log10(trend.slope_span))
    value, error = (figure / trend.slope_span * unit for figure in (trend.slope.value, trend.slope.error))
    text = f"{_figure(value, error, '+')} ± {_figure(error, error)} per {unit:,} steps"
    if trend.slope.sign == 0:
        return f"Over the last third no slope can be told from noise: {text}."
    return f"Over the last third the reward {'still rises' if trend.slope.sign > 0 else 'falls'}: {text}."


def _plateau(trend: RewardTrend) -> str:
    smooth = f"smoothed over {trend.window} points" if trend.window > 1 else "not smoothed"
    if trend.last_record == 0:
        return f"The curve, {smooth}, has never been above its beginning by more than noise."
    beginning = "Plateau" if trend.plateau >= LONG and trend.slope.sign <= 0 else "No plateau yet"
    return (
        f"{beginning}: the curve, {smooth}, last set a new best beyond noise at "
        f"{trend.timesteps[trend.last_record]:,.0f} steps; {trend.plateau:.0%} of the training so far came after it."
    )


def _best(trend: RewardTrend) -> str:
    best = int(trend.smoothed.argmax())
    behind = float(trend.smoothed[best] - trend.smoothed[-1])
    end = "the end is within noise of it, so no earlier policy is shown to be better"
    if behind > trend.margin:
        end = f"the end is {behind:.2g} lower, more than noise: an earlier policy was better"
    value = _figure(float(trend.smoothed[best]), trend.noise)
    return f"The smoothed best is {value} at {trend.timesteps[best]:,.0f} steps; {end}."


def _seed_spread(seeds: Sequence[int], trend: RewardTrend) -> str:
    (low, worst), *_, (high, best) = sorted(zip(trend.ends.tolist(), seeds, strict=True))
    verdict = "more" if high - low > abs(trend.gain.value) else "less"
    return (
        f"Over the last third seed {best} averages {_figure(high, high - low)} and seed {worst} "
        f"{_figure(low, high - low)}: the seeds differ by {high - low:.2g}, {verdict} than training changed."
    )


def _next_step(trend: RewardTrend, total: int) -> str:
    left = total - trend.timesteps[-1]
    if left > 0.01 * total:
        return f"Next: let it run, {left:,.0f} of {total:,.0f} steps are left; judge the plateau at the end."
    if trend.slope.sign < 0:
        return "Next: lower the learning rate, or stop where the smoothed best is: the reward falls at the end."
    if trend.slope.sign > 0 and trend.plateau < 0.5:
        return (
            f"Next: train longer; at this slope another {trend.slope_span:,.0f} steps add {trend.slope.value:.2g}. "
            "Compare Sharpe ratios on validation: reward on the training sessions is no proof."
        )
    if trend.gain.sign <= 0:
        return (
            "Next: more of the same will not help, since training has gained nothing that shows; try another learning "
            "rate, or a larger batch against the noise."
        )
    if trend.plateau >= 0.5:
        return (
            f"Next: stop at {trend.timesteps[trend.last_record]:,.0f} steps, which saves {trend.plateau:.0%} of the "
            "training time; for more reward try a lower learning rate or more entropy, not more steps."
        )
    return (
        f"Next: noise hides any slope below {N_ERRORS * trend.slope.error:.1g} over the last third; a batch four "
        "times as large, or four times the seeds, halves that."
    )


def _figure(value: float, resolution: float, sign: str = "") -> str:
    """Format a value to two digits of its resolution, at most four of its own."""
    digits = 1 - floor(log10(max(resolution, 1e-3 * abs(value), 1e-9)))
    return f"{value:{sign}z.{max(0, digits)}f}"
