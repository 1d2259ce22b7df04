"""FedOpt: momentum, Adam and Adagrad beside their formulas, SGD beside the rule itself, refusals and what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import (
    ASGD,
    LBFGS,
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    NAdam,
    Optimizer,
    RAdam,
    RMSprop,
    Rprop,
)

from rffl_pl.errors import UserError
from rffl_pl.servers import FLAME, NNM, QFFL, CenteredClipping, FedAvg, FedOpt, FoolsGold, Median, Server, SignSGD
from tests.functional.reference import close, uploads
from tests.runs import federate
from tests.servers.tasks import assert_equal, assert_refused, downloads, shards, task, through_file

Made = Callable[..., Optimizer]
ENTRIES = 53
PLAIN = partial(SGD, lr=1.0)


def started(server: Any, participants: int = 6, **told: Any) -> Any:
    server.start(task(shards(participants), [ENTRIES], **told))
    return server


def steps(server: Server, rounds: int = 5) -> list[Tensor]:
    """The steps of some rounds in which everybody sends."""
    return [downloads(server.step(uploads(6, ENTRIES, now), range(6)))[0] for now in range(rounds)]


@pytest.mark.parametrize("rule", [FedAvg, Median, NNM, CenteredClipping, FoolsGold])
def test_sgd_is_the_rule_itself(rule: Callable[[], Any]) -> None:
    """With learning rate 1 and no momentum a bit of a verdict is another than without an optimizer."""
    alone, behind = started(rule()), started(FedOpt(rule=rule(), optimizer=PLAIN))
    for now in range(5):
        rows = uploads(6, ENTRIES, now)
        assert_equal(behind.step(rows, range(6)), alone.step(rows, range(6)))


def test_momentum() -> None:
    """FedAvgM is not v <- 0.9 v + mean, w <- w + v (Hsu et al. 2019)."""
    velocity = torch.zeros(ENTRIES, dtype=torch.float64)
    for mean, step in zip(steps(started(FedAvg())), steps(started(FedOpt())), strict=True):
        velocity = 0.9 * velocity + mean.double()
        close(step, velocity)


def test_adam() -> None:
    """FedAdam is not Adam on the mean, with its bias corrected."""
    m = v = torch.zeros(ENTRIES, dtype=torch.float64)
    server = started(FedOpt(optimizer=partial(Adam, lr=0.02, betas=(0.9, 0.99), eps=1e-3)))
    for now, (mean, step) in enumerate(zip(steps(started(FedAvg())), steps(server), strict=True), 1):
        m, v = 0.9 * m + 0.1 * mean.double(), 0.99 * v + 0.01 * mean.double() ** 2
        close(step, 0.02 * (m / (1 - 0.9**now)) / ((v / (1 - 0.99**now)).sqrt() + 1e-3))


def test_adagrad() -> None:
    """FedAdagrad is not mean / (sqrt(sum of squares) + tau) (Reddi et al. 2021, Algorithm 2)."""
    total = torch.zeros(ENTRIES, dtype=torch.float64)
    server = started(FedOpt(optimizer=partial(Adagrad, lr=0.1, eps=1e-3)))
    for mean, step in zip(steps(started(FedAvg())), steps(server), strict=True):
        total = total + mean.double() ** 2
        close(step, 0.1 * mean.double() / (total.sqrt() + 1e-3))


OPTIMIZERS: dict[str, Made] = {
    **{made.__name__: made for made in (SGD, Adadelta, Adagrad, Adam, Adamax, ASGD, NAdam, RAdam, RMSprop, Rprop)},
    "momentum": partial(SGD, lr=1.0, momentum=0.9, nesterov=True),
    "AdamW": partial(AdamW, weight_decay=0.0),
}


@pytest.mark.parametrize("made", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_goes_on_to_the_same_bits(made: Made) -> None:
    """What an optimizer remembers is lost with the process, or a saved state moves on with it."""
    whole, before = started(FedOpt(optimizer=made)), started(FedOpt(optimizer=made))
    expected = steps(whole)
    steps(before, 2)
    state = through_file(before.state_dict())
    steps(before, 4)
    resumed = started(FedOpt(optimizer=made))
    resumed.load_state_dict(state)
    for now in range(2, 5):
        assert torch.equal(downloads(resumed.step(uploads(6, ENTRIES, now), range(6)))[0], expected[now])


@pytest.mark.parametrize("made", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_what_has_an_entry_for_every_coordinate(made: Made) -> None:
    """A vector that ranks would have to share is not among those that are said to be."""
    server = started(FedOpt(optimizer=made))
    steps(server, 2)
    state = server.state_dict()
    assert all(value.shape == (ENTRIES,) for value in state["optimizer_vectors"].values())
    assert all(not isinstance(value, Tensor) or value.numel() == 1 for value in state["optimizer"].values())


def test_a_round_without_votes_leaves_momentum_as_it_is() -> None:
    """Momentum goes on, or fades, while nobody sends anything."""
    server, other = started(FedOpt()), started(FedOpt())
    first, second = uploads(6, ENTRIES, 0), uploads(6, ENTRIES, 1)
    server.step(first, range(6))
    other.step(first, range(6))
    assert not downloads(server.step(torch.zeros(6, ENTRIES), range(6))).any()
    assert torch.equal(*(downloads(one.step(second, range(6)))[0] for one in (server, other)))


def refusing(parameters: Iterable[nn.Parameter]) -> Optimizer:
    """As the command line answers where an optimizer of one's own does not take its options."""
    raise UserError("Expected --server.optimizer Mine to be told more.")


def test_one_sentence_of_an_optimizer() -> None:
    """What is said of it already stands within another sentence, or nothing is said of what takes no vector."""
    assert_refused(lambda: FedOpt(optimizer=refusing), "Expected --server.optimizer Mine to be told more.")
    if hasattr(torch.optim, "Muon"):
        assert_refused(lambda: FedOpt(optimizer=torch.optim.Muon), "to take a vector and its", "take SGD or Adam.")


def test_refusals() -> None:
    """What cannot be an optimizer, or a rule, gets through to the first round, or is not named."""
    optimizer = "--server.optimizer"
    assert_refused(lambda: FedOpt(optimizer=LBFGS), optimizer, "LBFGS")
    assert_refused(lambda: FedOpt(optimizer=AdamW), f"{optimizer}.weight_decay 0", "got 0.01")
    assert_refused(lambda: FedOpt(optimizer=partial(SGD, lr=1, maximize=True)), f"{optimizer}.maximize to be false")
    assert_refused(lambda: FedOpt(optimizer=partial(SGD, lr=-1)), f"{optimizer} to take a vector and its", "rate: -1")
    if hasattr(torch.optim, "Adafactor"):
        assert_refused(lambda: FedOpt(optimizer=torch.optim.Adafactor), optimizer, "apart from all others", "Adafactor")
    for rule, named in (
        (SignSGD(), "SignSGD, which needs the model"),
        (QFFL(), "QFFL"),
        (FedOpt(), "FedOpt"),
        (FLAME(), "FLAME, which needs the model"),
    ):
        assert_refused(partial(started, FedOpt(rule=rule)), "--server.rule", f"got {named};")
    released = FedAvg(variant="released")
    for around, option in ((released, "--server.rule"), (NNM(rule=released), "--server.rule.rule")):
        named = f"got {option}.variant released, under which everybody's model is its own; leave that out."
        assert_refused(partial(started, FedOpt(rule=around)), named)
    assert_refused(lambda: FedOpt(optimizer=partial(Adam, betas=(0.9,))), optimizer, "IndexError")  # type: ignore[arg-type]
    assert_refused(partial(started, FedOpt(rule=NNM(rule=SignSGD()))), "--server.rule", "got SignSGD, which")
    if not torch.cuda.is_available():
        assert_refused(lambda: FedOpt(optimizer=partial(Adam, capturable=True)), optimizer, "capturable")
    assert_refused(lambda: started(NNM(rule=FedOpt())), "--server.rule", "FedOpt, for which uploads cannot be mixed")
    assert_refused(lambda: started(FedOpt(rule=NNM(tolerated=3))), "--server.rule.tolerated")


def test_another_optimizer_does_not_go_on() -> None:
    """Momentum is read as one of Adam's averages."""
    state = started(FedOpt()).state_dict()
    other = started(FedOpt(optimizer=Adam))
    assert_refused(lambda: other.load_state_dict(state), "--server.optimizer SGD, as in the checkpoint", "got Adam")


def test_settings() -> None:
    """Who goes on with another learning rate of the server is not told."""
    settings = FedOpt(rule=Median(), optimizer=partial(Adam, lr=0.5)).settings("--server")
    assert settings["--server.optimizer"] == "Adam"
    assert settings["--server.optimizer.lr"] == "0.5"
    assert settings["--server.rule"] == "Median"
    same = (FedOpt(optimizer=partial(SGD, lr=1, momentum=0.9, dampening=0.0, weight_decay=0.0)), FedOpt())
    assert same[0].settings("--server") | {"--server.rule": ""} == same[1].settings("--server") | {"--server.rule": ""}
    assert NNM(rule=NNM(tolerated=1)).settings("--server")["--server.rule.tolerated"] == "1"


def test_a_run_takes_longer_steps() -> None:
    """In a run momentum changes nothing, or the participants do not all have the server's model."""
    plain, fast = (federate(FedOpt(optimizer=made), rounds=3) for made in (PLAIN, partial(PLAIN, momentum=0.9)))
    far = [float((module.cohort.weights[0] - start(module)).norm()) for module in (plain, fast)]
    assert far[1] > 1.3 * far[0]
    assert all(torch.equal(row, fast.cohort.weights[0]) for row in fast.cohort.weights)


def start(module: Any) -> Tensor:
    return torch.nn.utils.parameters_to_vector(module.network.parameters()).detach()
