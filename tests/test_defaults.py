"""Numbers that results rest on where nobody gives them: those of papers, and those that the documentation says."""

import inspect
from typing import Any

import pytest

from rffl_pl import adversaries, servers
from rffl_pl.callbacks import loggers
from rffl_pl.cli.run import Run
from rffl_pl.datamodules import FederatedDataModule
from rffl_pl.functional import rounding
from rffl_pl.runs import curves
from rffl_pl.servers.switches import Switches

DEFAULTS: dict[Any, dict[str, Any]] = {
    adversaries.Imitation: {"share": 0.8},
    adversaries.OnOff: {"honest": 15, "scale": 1.0, "then": "noise"},
    adversaries.Mimic: {"warmup": 10},
    adversaries.FreeRider: {"scale": 1.0},
    servers.AFL: {"rate": 0.1},
    servers.Bulyan: {"byzantine": None},
    servers.CFFL: {"steepness": 5.0, "upload_share": 0.1},
    servers.CGSV: {"alpha": 0.95, "gamma": 0.5, "altruism_degree": 1.0},
    servers.DnC: {"filtering": 1.0, "byzantine": None},
    servers.FLAME: {"compare": "models", "noise_factor": 0.001},
    servers.FLTrust: {"root_examples": 100},
    servers.FedMGDA: {"slack": 0.1, "length": None},
    servers.QFFL: {"q": 0.1},
    servers.RFFL: {"gamma": 0.5, "alpha": 0.95},
    servers.TERM: {"tilt": 1.0},
    servers.NormBound: {"max_norm": None, "noise": 0.0},
    servers.TrimmedMean: {"trim": None},
}


@pytest.mark.parametrize("kind", DEFAULTS, ids=lambda kind: kind.__name__)
def test_defaults(kind: Any) -> None:
    """A number that nobody typed is another than was measured with."""
    made = kind()
    assert {name: made.arguments[name] for name in DEFAULTS[kind]} == DEFAULTS[kind]


@pytest.mark.parametrize(
    ("constructor", "said"),
    [
        (FederatedDataModule, {"measurements": 250_000, "adversary_examples": 600, "validation": 0.1}),
        (Run, {"patience": 60, "grace": 20, "checkpoint_every": 1}),
    ],
    ids=["data", "run"],
)
def test_what_the_documentation_says(constructor: Any, said: dict[str, Any]) -> None:
    """An option is another one by default than README says."""
    parameters = inspect.signature(constructor.__init__).parameters
    assert {name: parameters[name].default for name in said} == said


def test_numbers_that_no_option_changes() -> None:
    """README names them."""
    assert (rounding.MULTIPLE, loggers.MOST_LINES, curves.FEW) == (16, 16, 12)


def test_guarded() -> None:
    """The preset is another than what docs/takeover.md was measured with."""
    switches = Switches.of("guarded")
    assert (switches.normalise, switches.first_weights, switches.removal_from) == (True, "uniform", 0)
    assert (switches.similarity, switches.duplicates, switches.probation) == ("leave_one_out", "once", 1)
    assert switches.confirmed_by == 1 / 3
    assert (switches.removal_confidence, switches.short_memory, switches.earned) == (0.999, 0.5, False)
