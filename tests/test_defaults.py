"""Numbers that results rest on where nobody gives them: those of papers, and those that the documentation says."""

from typing import Any

import pytest

from rffl_pl import adversaries, servers
from rffl_pl.servers.steps import Steps

DEFAULTS: dict[Any, dict[str, Any]] = {
    adversaries.Imitation: {"share": 0.8},
    adversaries.OnOff: {"honest": 15},
    adversaries.Mimic: {"warmup": 10},
    adversaries.FreeRider: {"scale": 1.0},
    servers.AFL: {"rate": 0.1},
    servers.CGSV: {"alpha": 0.95},
    servers.DnC: {"filtering": 1.0, "byzantine": None},
    servers.FedMGDA: {"slack": 0.1, "length": None},
    servers.QFFL: {"q": 0.1},
    servers.RFFL: {"gamma": 0.5, "alpha": 0.95},
    servers.TERM: {"tilt": 1.0},
    servers.TrimmedMean: {"trim": 0.2},
}


@pytest.mark.parametrize("kind", DEFAULTS, ids=lambda kind: kind.__name__)
def test_defaults(kind: Any) -> None:
    """A number that nobody typed is another than was measured with."""
    made = kind()
    assert {name: made.arguments[name] for name in DEFAULTS[kind]} == DEFAULTS[kind]


def test_guarded() -> None:
    """The preset is another than what docs/takeover.md was measured with."""
    steps = Steps.of("guarded", {})
    assert (steps.normalise, steps.first_weights, steps.removal_from) == (True, "uniform", 0)
    assert (steps.similarity, steps.duplicates, steps.probation) == ("leave_one_out", "once", 1)
    assert (steps.removal_confidence, steps.short_memory, steps.earned) == (0.999, 0.5, False)
