"""The monitor: exact ranks, a true martingale, few false alarms, quick detection."""

from __future__ import annotations

import itertools
import math
import re
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from scipy import stats

from gemfi.data import Task, digits
from gemfi.errors import InputError, RoleError
from gemfi.model import Model
from gemfi.monitor import Monitor, martingale
from gemfi.monitor.martingale import (
    BLOCK,
    RATIO,
    Order,
    counts_among,
    draws,
    no_stakes,
    p_values,
    play,
)
from gemfi.monitor.stream import BINS, RECENT
from gemfi.scores import SCORES
from support.digit_models import trained_on

Floats = npt.NDArray[np.float64]


# -- slow and obvious -----------------------------------------------------------------------------


def counts_one_by_one(known: Floats, scores: Floats) -> list[tuple[int, int]]:
    """How many are above and equal, among the known ones and the earlier scores."""
    seen, found = list(known), []
    for score in scores:
        found.append((sum(each > score for each in seen), sum(each == score for each in seen)))
        seen.append(score)
    return found


def p_one_by_one(known: Floats, scores: Floats, uniform: Floats) -> Floats:
    pairs = counts_one_by_one(known, scores)
    return np.array(
        [
            (above + u * (equal + 1)) / (len(known) + n + 1)
            for n, ((above, equal), u) in enumerate(zip(pairs, uniform, strict=True))
        ]
    )


def wealth_directly(p: Floats) -> float:
    """Every bettor and every time of its start as a sum, without any recursion."""
    total, count = 0.0, len(p)
    start = [1 / math.log2(k + 1) - 1 / math.log2(k + 2) for k in range(1, count + 1)]
    for epsilon, mirrored in itertools.product(martingale.EXPONENTS, (False, True)):
        bets = epsilon * (1 - p if mirrored else p) ** (epsilon - 1)
        total += sum(w * math.prod(bets[k:]) for k, w in enumerate(start)) / martingale.BETTORS
    return total + 1 - sum(start)


def fixed_reference_wealth(reference: Floats, scores: Floats, seed: int) -> Floats:
    """Log wealth of the same bets on ranks among calibration scores alone: the naive way."""
    counts = counts_among(np.sort(reference), scores)
    uniform = draws(seed, 0, 0, len(scores))
    p, q = p_values(counts, np.full(len(scores), len(reference) + 1), uniform)
    return play(no_stakes(), 0, p, q)[1]


def normal(seed: int, count: int) -> Floats:
    return np.random.default_rng(seed).normal(size=count)


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Bit for bit."""
    return one.keys() == other.keys() and all(
        np.asarray(one[key]).tobytes() == np.asarray(other[key]).tobytes() for key in one
    )


# -- ranks ----------------------------------------------------------------------------------------


class TestRanks:
    @given(
        st.lists(st.integers(-3, 3), max_size=6),
        st.lists(st.integers(-3, 3), min_size=1, max_size=20),
        st.integers(1, 20),
    )
    def test_counts_with_many_ties(self, first: list[int], then: list[int], size: int) -> None:
        known, scores = np.array(first, float), np.array(then, float)
        order, found = Order.of(known), []
        for start in range(0, len(scores), size):
            counts, order = order.extended(scores[start : start + size])
            found += [(above, equal) for above, equal in counts.T.tolist()]
        assert found == counts_one_by_one(known, scores)
        assert order.ascending().tolist() == sorted([*known, *scores])

    @pytest.mark.parametrize("decimals", [1, 15])
    def test_counts_of_thousands_in_batches_of_any_size(self, decimals: int) -> None:
        scores = normal(0, 6000).round(decimals)
        earlier = np.tri(len(scores), k=-1, dtype=bool)
        above = ((scores > scores[:, None]) & earlier).sum(axis=1)
        equal = ((scores == scores[:, None]) & earlier).sum(axis=1)
        ends = np.cumsum(np.random.default_rng(1).integers(1, 700, 40))
        order, found = Order(), []
        for part in np.split(scores, ends[ends < len(scores)]):
            counts, order = order.extended(part)
            found.append(counts)
        assert (np.concatenate(found, axis=1) == [above, equal]).all()

    def test_runs_are_few_and_hold_eight_bytes_a_score(self) -> None:
        order = Order()
        for part in np.split(normal(0, 40_000), 100):
            order = order.extended(part)[1]
            sizes = [len(run) for run in order.runs]
            assert all(a > RATIO * b for a, b in itertools.pairwise(sizes))
        assert len(order) == 40_000
        assert len(order.rest) < BLOCK
        assert sum(run.base is None for run in order.runs) == len(order.runs)
        assert sum(run.nbytes for run in order.runs) + order.rest.nbytes == 8 * 40_000

    def test_p_values_are_those_of_the_definition(self) -> None:
        for decimals in (1, 15):
            known, scores = normal(0, 40).round(decimals), normal(1, 300).round(decimals)
            uniform = draws(3, 0, 0, 300)
            counts = counts_among(np.sort(known), scores) + Order().extended(scores)[0]
            p, q = p_values(counts, 40 + np.arange(1, 301), uniform)
            assert p == pytest.approx(p_one_by_one(known, scores, uniform), rel=1e-14)
            assert p + q == pytest.approx(np.ones(300), rel=1e-15)

    def test_p_values_are_small_where_scores_are_high_and_never_0_or_1(self) -> None:
        tiny = 2.0**-53
        one, big = np.ones(1, np.int64), np.full(1, 10**9)
        lowest, _ = p_values(np.array([0 * one, 0 * one]), big, np.array([tiny]))
        _, highest = p_values(np.array([big - 1, 0 * one]), big, np.array([1 - tiny]))
        assert 0 < lowest[0] == pytest.approx(tiny / 1e9)
        assert highest[0] == lowest[0]

    @pytest.mark.parametrize("decimals", [0, 15])
    def test_p_values_of_an_exchangeable_stream_are_independent_and_uniform(
        self, decimals: int
    ) -> None:
        scores = normal(0, 20_000).round(decimals)
        counts = counts_among(np.sort(scores[:50]), scores[50:])
        counts += Order().extended(scores[50:])[0]
        uniform = draws(0, 0, 0, 19_950)
        p = p_values(counts, np.arange(51, 20_001), uniform)[0]
        assert stats.kstest(p, "uniform").pvalue > 0.01
        assert stats.pearsonr(p[:-1], p[1:]).pvalue > 0.01
        square = np.histogram2d(p[::2][:9975], p[1::2][:9975], bins=5)[0]
        assert stats.chisquare(square.ravel()).pvalue > 0.01

    def test_draws_depend_on_seed_stream_and_place_alone(self) -> None:
        whole = draws(5, 1, 0, 10_000)
        assert ((whole > 0) & (whole < 1)).all()
        assert (1 - (1 - whole) == whole).all()
        assert stats.kstest(whole, "uniform").pvalue > 0.01
        for start, count in ((0, 1), (4095, 2), (8191, 1), (3, 9000), (4096, 4096)):
            assert (draws(5, 1, start, count) == whole[start : start + count]).all()
        assert abs(np.corrcoef(whole, draws(5, 2, 0, 10_000))[0, 1]) < 0.05
        assert abs(np.corrcoef(whole, draws(6, 1, 0, 10_000))[0, 1]) < 0.05

    def test_draws_are_not_those_of_a_caller_with_the_same_seed(self) -> None:
        """Scores with ties that came from the same numbers would make the test fire by itself."""
        assert not np.isin(draws(5, 0, 0, 4096), np.random.default_rng(5).random(8192)).any()
        coins = (np.random.default_rng(0).random(1100) < 0.5).astype(float)
        assert not Monitor(coins[1000:], seed=0).update(coins[:1000]).fired


# -- betting --------------------------------------------------------------------------------------


class TestBetting:
    def test_stakes_and_reserve_are_one(self) -> None:
        n = np.arange(1, 100_001)
        new, reserve = np.exp(martingale.log_new_stake(n)), np.exp(martingale.log_reserve(n))
        assert (abs(np.cumsum(new) + reserve - 1) < 1e-12).all()
        assert np.exp(martingale.log_reserve(np.zeros(1, np.int64))) == pytest.approx(1, rel=1e-15)
        assert new[-1] * 1e5 * math.log(1e5) ** 2 == pytest.approx(math.log(2), rel=1e-3)

    def test_wealth_is_the_sum_over_bettors_and_starts(self) -> None:
        p = np.random.default_rng(0).beta(0.6, 1.0, 60)
        found = np.exp(play(no_stakes(), 0, p, 1 - p)[1])
        wanted = [wealth_directly(p[:count]) for count in range(1, 61)]
        assert found == pytest.approx(np.array(wanted), rel=1e-10)
        assert max(wanted) > 3  # it bets on something

    def test_the_next_wealth_is_the_present_one_in_the_mean(self) -> None:
        """By quadrature of the code itself over p, after a stream that has won and lost."""
        before = np.random.default_rng(1).beta(0.5, 0.8, 30)
        stakes, path = play(no_stakes(), 0, before, 1 - before)
        x, weight = np.polynomial.legendre.leggauss(400)
        half = ((x + 1) / 2) ** 20 / 2  # the bets are integrable, but infinite at 0 and at 1
        mass = weight / 2 * 20 * ((x + 1) / 2) ** 19 / 2
        pairs = [*zip(half, 1 - half, strict=True), *zip(1 - half, half, strict=True)]
        after = [play(stakes[-1], 30, np.array([p]), np.array([q]))[1][0] for p, q in pairs]
        wealth, now = np.exp(after), math.exp(path[-1])
        assert now > 1.2
        assert np.append(mass, mass) @ wealth == pytest.approx(now, rel=1e-9)

    @pytest.mark.parametrize("values", [(1, 2, 3, 4, 5, 6), (1, 1, 2, 2, 2, 3)])
    def test_the_mean_over_all_orders_is_exactly_one(self, values: tuple[int, ...]) -> None:
        """Calibration and stream in every order; the draws are integrated by hand."""
        n = np.arange(1, 5)
        new, reserve = (
            np.exp(martingale.log_new_stake(n)),
            np.exp(martingale.log_reserve(n[-1:]))[0],
        )
        wealths = []
        for order in itertools.permutations(np.array(values, float)):
            known, scores = np.sort(order[:2]), np.array(order[2:])
            counts = counts_among(known, scores) + Order().extended(scores)[0]
            low = counts[0] / (2 + n)
            high = (counts.sum(axis=0) + 1) / (2 + n)
            total = 0.0
            for epsilon, mirrored in itertools.product(martingale.EXPONENTS, (False, True)):
                ends = (1 - high, 1 - low) if mirrored else (low, high)
                bets = (ends[1] ** epsilon - ends[0] ** epsilon) / (high - low)  # the mean over u
                stake = 0.0
                for fresh, bet in zip(new, bets, strict=True):
                    stake = (stake + fresh) * bet
                total += stake / martingale.BETTORS
            wealths.append(total + reserve)
        assert np.std(wealths) > 0.1
        assert math.fsum(wealths) / math.factorial(6) == pytest.approx(1, rel=1e-12)


# -- the monitor ----------------------------------------------------------------------------------


class TestMonitor:
    def test_wealth_is_that_of_the_definition(self) -> None:
        known, scores = normal(0, 30).round(1), normal(1, 50).round(1) + 1.5
        state = Monitor(known, 0.1, 7).update(scores)
        p = p_one_by_one(known, scores, draws(7, 0, 0, 50))
        path = [math.log10(wealth_directly(p[:count])) for count in range(1, 51)]
        fired_at = next(i for i, each in enumerate(path) if each >= 1)
        assert state.log10_wealth == pytest.approx(path[-1], rel=1e-9)
        assert state.log10_largest == pytest.approx(max(path), rel=1e-9)
        assert state.largest_at == path.index(max(path))
        assert (state.fired_at, state.direction) == (fired_at, "rise")
        assert state.log10_limit == pytest.approx(1)

    def test_batches_change_nothing(self) -> None:
        """Bit for bit, the history included, which was thinned twice."""
        known, scores = normal(0, 200).round(2), normal(1, 2 * BINS + 50).round(2)
        scores[BINS:] += 1
        whole = Monitor(known)
        whole.update(scores)
        assert whole.state_dict()["stride"] == 4
        assert whole.fired_at is not None
        for size in (1, 3, 100, 1025):
            monitor = Monitor(known)
            states = [
                monitor.update(scores[start : start + size])
                for start in range(0, len(scores), size)
            ]
            assert same(monitor.state_dict(), whole.state_dict())
            assert states[-1] == whole.state

    def test_it_goes_on_from_a_file_bit_for_bit(self, tmp_path: Path) -> None:
        known, scores = normal(0, 100), normal(1, 2000)
        scores[1200:] -= 0.7
        whole = Monitor(known, 0.02, 5, score="entropy")
        whole.update([3.0])
        whole.reset()  # a second stream has draws of its own
        for cut in (0, 1, 700, 1500):
            part = Monitor.from_state_dict(whole.state_dict())
            part.update(scores[:cut])
            np.savez(tmp_path / "state.npz", **part.state_dict())
            with np.load(tmp_path / "state.npz", allow_pickle=False) as state:
                other = Monitor.from_state_dict(state)
            assert same(other.state_dict(), part.state_dict())
            assert part.update(scores[cut:]) == other.update(scores[cut:])
            assert same(other.state_dict(), part.state_dict())
            assert other.fired_at is not None
            assert other.score == "entropy"

    def test_a_state_is_not_shared(self) -> None:
        monitor = Monitor(normal(0, 10))
        monitor.update(normal(1, 10))
        state, before = monitor.state_dict(), monitor.state_dict()
        other = Monitor.from_state_dict(state)
        for value in state.values():
            if isinstance(value, np.ndarray):
                value[...] = 0
        assert same(monitor.state_dict(), before)
        assert same(other.state_dict(), before)

    def test_the_alarm_stays_and_counting_goes_on(self) -> None:
        monitor = Monitor(normal(0, 500))
        drift, quiet = normal(1, 40) + 1.5, normal(2, 5000)
        fired = monitor.update(drift).fired_at
        assert fired is not None
        later = monitor.update(quiet)  # the drift is over, and its wealth is lost
        assert (later.count, later.fired_at, later.fired) == (5040, fired, True)
        assert later.log10_wealth < 0 < later.log10_limit < later.log10_largest
        assert Monitor(normal(0, 500)).update(np.append(drift, quiet)) == later
        monitor.reset()
        assert (monitor.state.count, monitor.fired_at, monitor.state.fired) == (0, None, False)
        assert (monitor.state.log10_wealth, monitor.state.largest_at) == (0.0, None)
        assert monitor.update(normal(1, 100) + 2).fired

    def test_reset_draws_anew(self) -> None:
        monitor = Monitor(np.zeros(10))
        first = monitor.update(np.zeros(50)).log10_wealth
        monitor.reset()
        assert monitor.update(np.zeros(50)).log10_wealth != first
        assert Monitor(np.zeros(10)).update(np.zeros(50)).log10_wealth == first

    def test_only_the_order_of_the_scores_counts(self) -> None:
        known, scores = normal(0, 100), normal(1, 400) * 1.5
        one = Monitor(known).update(scores)
        assert one == Monitor(np.exp(known)[::-1]).update(np.exp(scores))
        assert one != Monitor(known).update(scores[::-1])

    def test_what_it_takes(self) -> None:
        known, scores = normal(0, 50), normal(1, 20).astype(np.float32)
        wanted = Monitor(known).update(scores)
        assert Monitor(torch.tensor(known)).update(torch.tensor(scores)) == wanted
        assert Monitor(known.tolist()).update(scores.tolist()) == wanted
        monitor = Monitor(known)
        for score in scores:
            monitor.update(score)
        assert monitor.update([]) == monitor.update(np.empty(0)) == wanted
        assert Monitor([1, 2, 3]).update(2).count == 1

    def test_no_overflow_in_a_strong_and_long_drift(self) -> None:
        monitor = Monitor(normal(0, 1000))
        monitor.update(normal(1, 5000) + np.linspace(0, 200, 5000))
        assert 308 < monitor.state.log10_wealth < math.inf
        assert "later" in monitor.plot().axes[0].get_title(loc="left")


# -- false alarms and detection -------------------------------------------------------------------


class TestAlarms:
    def test_few_false_alarms_where_the_naive_way_has_many(self) -> None:
        """80 streams of 1,500: ranks among a fixed reference of 100 are not uniform together."""
        naive, largest = 0, []
        for seed in range(80):
            scores = normal(seed, 1600)
            naive += int(
                fixed_reference_wealth(scores[:100], scores[100:], seed).max() >= math.log(20)
            )
            largest.append(Monitor(scores[:100], seed=seed).update(scores[100:]).log10_largest)
        assert naive / 80 > 0.4  # where 0.05 was asked for
        for level in (0.5, 0.2, 0.05, 0.01):
            fired = sum(each >= -math.log10(level) for each in largest)
            assert fired <= stats.binom.ppf(0.999, 80, level), level

    @pytest.mark.parametrize("scores", ["ties", "few"])
    def test_few_false_alarms_with_ties_or_hardly_any_calibration(self, scores: str) -> None:
        """300 streams of 300."""
        fired, size = 0, 3 if scores == "few" else 30
        for seed in range(300):
            values = normal(seed, 300 + size).round(15 if scores == "few" else 0)
            fired += Monitor(values[:size], 0.1, seed).update(values[size:]).fired
        assert fired <= stats.binom.ppf(0.999, 300, 0.1)

    @pytest.mark.parametrize(
        ("shift", "at", "within"),
        [(0.5, 0, 400), (0.5, 3000, 400), (1, 0, 60), (1, 3000, 100), (2, 0, 15), (2, 3000, 25),
         (-1, 0, 60), (-1, 3000, 100)],
    )  # fmt: skip
    def test_a_shift_of_a_normal_score_is_found(self, shift: float, at: int, within: int) -> None:
        """In standard deviations; 1,000 calibration scores, false alarms at 1 %."""
        for seed in range(5):
            known, scores = normal(seed, 1000), normal(100 + seed, at + within)
            scores[at:] += shift
            state = Monitor(known, seed=seed).update(scores)
            assert state.fired_at is not None
            assert state.fired_at >= at
            assert state.direction == ("rise" if shift > 0 else "fall")

    def test_a_wider_spread_and_rare_strangers_are_found(self) -> None:
        for seed in range(3):
            wide = normal(seed, 2000)
            wide[1000:] *= 2
            strange = normal(seed, 3000)
            strange[1000::20] += 10  # one in twenty
            for scores in (wide, strange):
                fired_at = Monitor(normal(50 + seed, 1000)).update(scores).fired_at
                assert fired_at is not None
                assert fired_at >= 1000


# -- what it refuses ------------------------------------------------------------------------------


class TestErrors:
    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_scores_that_are_not_finite_by_place(self, bad: float) -> None:
        monitor = Monitor(normal(0, 20))
        monitor.update(normal(1, 300))
        before = monitor.state_dict()
        wanted = rf"scores\[7\] is {bad}, .*finite \(input 307 of the stream; none was counted\)"
        with pytest.raises(InputError, match=wanted):
            monitor.update([0.0] * 7 + [bad, math.nan])
        assert same(monitor.state_dict(), before)
        with pytest.raises(InputError, match=rf"reference\[1\] is {bad}, .*finite$"):
            Monitor([0.0, bad])

    @pytest.mark.parametrize(
        ("scores", "words"),
        [
            (np.zeros((2, 2)), r"scores must have shape \(m,\), got \(2, 2\)"),
            (["a"], "scores must hold real numbers, got dtype <U1"),
            ([True], "scores must hold real numbers, got dtype bool"),
            ([[1.0], [1.0, 2.0]], "scores cannot be read as one array"),
        ],
    )
    def test_what_is_no_scores(self, scores: Any, words: str) -> None:
        with pytest.raises(InputError, match=words):
            Monitor([0.0]).update(scores)

    def test_settings(self) -> None:
        with pytest.raises(InputError, match="reference is empty"):
            Monitor([])
        for level in (0, 1, 1.5, math.nan):
            with pytest.raises(InputError, match="false_alarm must be above 0 and below 1"):
                Monitor([0.0], level)
        with pytest.raises(InputError, match="seed must be an integer of at least 0"):
            Monitor([0.0], seed=-1)
        with pytest.raises(InputError, match="nothing to draw yet"):
            Monitor([0.0]).plot()

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"format": 2}, "format 2, but this version reads 1"),
            (
                {"peaks": np.zeros(3)},
                "peaks must be a float64 array of length 1024, got float64 of",
            ),
            ({"ranks": np.zeros(BINS)}, "ranks must be a int64 array of length 1024, got float64"),
            ({"seed": 1.5}, "seed: expected an integer, got 1.5"),
            ({"seed": -1}, "seed must be an integer of at least 0"),
            ({"fired_at": 9}, "parts contradict each other"),
            ({"direction": 1}, "parts contradict each other"),
            ({"scores": np.zeros(5)}, "parts contradict each other"),
            ({"scores": np.full(3, math.nan)}, "parts contradict each other"),
            ({"stride": 0}, "parts contradict each other"),
            ({"stride": 3}, "parts contradict each other"),
            ({"log_wealth": math.nan}, "parts contradict each other"),
            ({"log_stakes": np.full(12, math.nan)}, "parts contradict each other"),
            ({"more": 1}, "no state of a monitor: it holds more"),
        ],
    )
    def test_a_state_that_is_none(self, changes: dict[str, Any], words: str) -> None:
        monitor = Monitor([0.0, 1.0])
        monitor.update(normal(0, 3))
        before = monitor.state_dict()
        with pytest.raises(InputError, match=words):
            Monitor.from_state_dict(before | changes)
        assert same(monitor.state_dict(), before)
        with pytest.raises(InputError, match="lacks scores, seed"):
            Monitor.from_state_dict(
                {k: v for k, v in before.items() if k not in ("seed", "scores")}
            )
        with pytest.raises(InputError, match="must be a mapping, got list"):
            Monitor.from_state_dict([])  # type: ignore[arg-type]


# -- words and pictures ---------------------------------------------------------------------------


class TestSummary:
    def test_before_the_first_input(self) -> None:
        assert Monitor([0.0, 1.0], 0.05).summary().splitlines() == [
            "Monitor of 0 inputs against 2 calibration scores",
            "wealth  10^0 now, never above its beginning; fires at 10^1.3",
            "alarm   none (a stream like the calibration data ever fires with at most 5 %)",
        ]

    @pytest.mark.parametrize(
        ("shift", "alarm", "recent"),
        [
            (0, "none .a stream like", "as the calibration data"),
            (2, "FIRED at input 1,0.*: scores rose, inputs look less", "less familiar than the"),
            (-2, "FIRED at input 1,0.*: scores fell, inputs look more", "more familiar than the"),
        ],
    )
    def test_what_it_says(self, shift: float, alarm: str, recent: str) -> None:
        scores = normal(1, 1200)
        scores[1000:] += shift
        monitor = Monitor(normal(0, 500), score="entropy")
        monitor.update(scores)
        head, wealth, fired, last = monitor.summary().splitlines()
        assert head == "Monitor of 1,200 inputs against 500 calibration scores by entropy"
        assert wealth.endswith("fires at 10^2")
        assert re.search(alarm, fired)
        assert last.endswith(recent + (" calibration data" if shift else ""))
        against = (1 + (normal(0, 500) >= scores[:, None]).sum(axis=1)) / 501
        (median,) = re.findall(r"median p (\S+) in the last 100 inputs", last)
        assert float(median) == pytest.approx(np.median(against[-RECENT:]), abs=0.0071)

    def test_repr(self) -> None:
        assert repr(Monitor([1.0])) == (
            "Monitor(1 reference scores, false_alarm=0.01, 0 inputs, fired_at=None)"
        )


class TestPlot:
    @pytest.mark.parametrize("count", [1, 70, 1500])
    def test_the_lines_are_those_of_the_stream(self, count: int) -> None:
        known, scores = normal(0, 300), normal(1, count)
        monitor, path = Monitor(known), [0.0]
        path += [monitor.update(score).log10_wealth for score in scores]
        upper, lower = monitor.plot().axes
        x, y = upper.lines[0].get_data()
        stride = monitor.state_dict()["stride"]
        for end, value in zip(x[1:], y[1:], strict=True):
            first = (int(end) - 1) // stride * stride + 1
            assert value == pytest.approx(max(path[first : int(end) + 1]))
        assert x[-1] == count
        p = (1 + 2 * (known > scores[:, None]).sum(axis=1)) / 602
        places, means = lower.lines[1].get_data()
        size = round(2 * places[0])
        assert size >= min(count, 10)
        assert len(places) <= 64
        wanted = [p[start : start + size].mean() for start in range(0, count, size)]
        assert means == pytest.approx(np.array(wanted))
        assert upper.get_title(loc="left").startswith(f"no alarm in {count:,} input")

    def test_the_alarm_is_marked(self, tmp_path: Path) -> None:
        monitor = Monitor(normal(0, 300))
        fired = monitor.update(normal(1, 50) - 3).fired_at
        assert fired is not None
        settings = dict(mpl.rcParams)
        figure = monitor.plot(tmp_path / "new" / "figure.png")
        assert isinstance(figure, Figure)
        assert dict(mpl.rcParams) == settings
        assert (tmp_path / "new" / "figure.png").read_bytes().startswith(b"\x89PNG")
        for axes in figure.axes:
            assert any(set(line.get_xdata()) == {fired + 1} for line in axes.lines)
        assert (
            figure.axes[0].get_title(loc="left").startswith(f"alarm at input {fired}: scores fell")
        )
        with pytest.raises(InputError, match=r"cannot write a figure as 'figure\.doc'; endings: "):
            monitor.plot(tmp_path / "figure.doc")

    def test_without_matplotlib(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monitor = Monitor([0.0, 1.0])
        monitor.update([0.5])
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
        with pytest.raises(
            InputError, match=r"needs matplotlib: pip install '\.\[plot\]' in the clone"
        ):
            monitor.plot()


# -- a real model ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def task() -> Task:
    return digits()


@pytest.fixture(scope="module")
def model(task: Task) -> Model:
    return trained_on(task, "softmax", epochs=4, channels=16)


class TestModel:
    def test_it_fires_after_the_change_and_not_before(self, task: Task, model: Model) -> None:
        shuffled = torch.from_numpy(np.random.default_rng(0).permutation(len(task.test)))
        known, sevens = task.test.x[shuffled], task.ood_validation["digits-7"].x
        monitor = Monitor.fit(model, task.calibration, false_alarm=0.01)
        assert monitor.score == "logit_energy"
        for images in known.split(50):
            assert not monitor.update(model.predict(images)).fired
        state = monitor.update(model.predict(sevens))
        assert state.count == len(known) + len(sevens)
        assert state.fired_at is not None
        assert len(known) <= state.fired_at < len(known) + 60
        assert state.direction == "rise"

    def test_fit_takes_the_score_that_is_named(self, task: Task, model: Model) -> None:
        monitor = Monitor.fit(model, task.calibration, 0.05, 3, score="entropy", batch_size=10)
        scores = SCORES["entropy"](model.predict(task.calibration)).numpy()
        assert monitor.reference == pytest.approx(np.sort(scores), rel=1e-5)
        assert (monitor.false_alarm, monitor.seed, monitor.score) == (0.05, 3, "entropy")
        belief = model.predict(task.validation)
        other = Monitor.from_state_dict(monitor.state_dict())
        assert monitor.update(belief) == other.update(SCORES["entropy"](belief))

    def test_what_it_refuses(self, task: Task, model: Model) -> None:
        for split in (task.train, task.validation, task.test, task.ood_validation["digits-7"]):
            with pytest.raises(
                RoleError, match=r"which a monitor refuses \(it takes calibration\)"
            ):
                Monitor.fit(model, split)
        with pytest.raises(InputError, match="a monitor needs a Split with a role, got Tensor"):
            Monitor.fit(model, task.calibration.x)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="unknown score 'entrophy'; known: max_prob, entropy"):
            Monitor.fit(model, task.calibration, score="entrophy")
        with pytest.raises(InputError, match="made from scores and does not know how to score"):
            Monitor([0.0]).update(model.predict(task.validation))
