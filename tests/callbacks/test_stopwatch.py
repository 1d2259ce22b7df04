"""What a run says of the time that measuring took."""

from __future__ import annotations

import time

import pytest

from rffl_pl.callbacks.stopwatch import Stopwatch


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that the next readings give, the last of them first."""
    readings: list[float] = []
    monkeypatch.setattr(time, "perf_counter", readings.pop)
    return readings


def test_measuring_that_takes_long_is_told(clock: list[float]) -> None:
    """Two rounds of 20 s, with 25 s of measuring after each; what happens between the rounds counts for neither."""
    clock += reversed([0, 20, 45, 100, 120, 145])
    watch = Stopwatch()
    for _ in range(2):
        watch.start()
        watch.played()
        watch.measured()
    assert watch.advice(1) == [
        "measuring every model after every round took 50 s, the rounds 40 s; --trainer.check_val_every_n_epoch 5 "
        "measures less often"
    ]
    assert watch.advice(3)[0].startswith("measuring every model after every 3 rounds took 50 s")
    assert "--trainer.check_val_every_n_epoch 15 " in watch.advice(3)[0]
    assert watch.advice(None) == []


@pytest.mark.parametrize(("played", "measured"), [(10, 29), (100, 40)])
def test_what_costs_little_is_not_told(clock: list[float], played: float, measured: float) -> None:
    """Neither seconds of a short run nor a small share of a long one."""
    clock += reversed([0, played, played + measured])
    watch = Stopwatch()
    watch.start()
    watch.played()
    watch.measured()
    assert watch.advice(1) == []


def test_what_is_measured_before_the_first_round() -> None:
    """As Lightning's sanity check is: it is no round as long as the machine is up."""
    watch = Stopwatch()
    watch.played()
    assert watch.rounds == 0
