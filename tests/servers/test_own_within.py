"""Rules of one's own within rules of the package, or around them: what is promised and told of them as of one alone."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback
from torch import Tensor

from rffl_pl.errors import UserError
from rffl_pl.servers import ARC, NNM, Bucketing, Consensus, Evidence, FedOpt, Task
from rffl_pl.servers.mixing import Mixing
from tests.runs import federate

AROUND: dict[str, Callable[[Consensus], Consensus]] = {
    "--server.rule": lambda rule: NNM(rule=rule),
    "--server.rule.rule": lambda rule: FedOpt(rule=Bucketing(rule=rule, bucket=1)),
    "--server": lambda rule: rule,
}
everywhere = pytest.mark.parametrize("option", AROUND)


class Failing(Consensus):
    """Fails where its option says, or gives there what nobody can go on with."""

    def __init__(self, *, where: str) -> None:
        super().__init__()
        self.where = where

    def reached(self, where: str) -> None:
        """Fail, if it is to be here."""
        if where == self.where:
            raise KeyError(where)

    def start(self, task: Task) -> None:
        if self.where != "begins nothing":
            super().start(task)
        self.reached("start")

    def weigh(self, evidence: Evidence) -> Tensor:
        self.reached("weigh")
        return super().weigh(evidence)

    def kept(self, update: Tensor) -> Tensor:
        self.reached("kept")
        return update[:9] if self.where == "half kept" else super().kept(update)

    def outgoing(self, update: Tensor, memory: dict[str, Any], model: Tensor) -> Tensor:
        if self.where == "changed":
            update.mul_(2)
        return update[:9] if self.where == "half sent" else update

    def pack(self, upload: Tensor) -> Tensor:
        self.reached("pack")
        return super().pack(upload)

    def state_dict(self) -> dict[str, Any]:
        self.reached("state_dict")
        return super().state_dict() | ({"typical": np.float64(1)} if self.where == "NumPy's" else {})


TOLD = {
    "start": "Failing to start, but KeyError: 'start'",
    "begins nothing": "Failing to call super().start(task), but it does not",
    "weigh": "Failing to judge the uploads in round 1, but KeyError: 'weigh'",
    "kept": "Failing to keep what is a participant's own of its update in round 1, but KeyError: 'kept'",
    "pack": "Failing to pack an upload in round 1, but KeyError: 'pack'",
    "state_dict": "Failing to take back what its state_dict gives, but KeyError: 'state_dict'",
    "half kept": "Failing to give shape [4810], but got shape [9].",
    "half sent": "Failing to give shape [4810], but got shape [9].",
    "changed": "Failing to leave updates as they are, but it changes them in place",
}


@everywhere
@pytest.mark.parametrize("where", TOLD)
def test_what_fails_within(where: str, option: str) -> None:
    """It is a traceback of ours, or the rule around it is blamed."""
    with pytest.raises(UserError, match=f"{option} ([a-z_.]+[.])?{re.escape(TOLD[where])}"):
        federate(AROUND[option](Failing(where=where)), rounds=3)


@everywhere
@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("state_dict", "Failing to give its state for a checkpoint, but KeyError: 'state_dict'"),
        ("NumPy's", "Failing to hold tensors and Python's own numbers and texts, .* but typical has numpy.float64"),
    ],
)
def test_state_within_that_no_checkpoint_keeps(where: str, told: str, option: str) -> None:
    """Likewise."""
    with pytest.raises(UserError, match=f"{option} ([a-z_.]+[.])?{told}"):
        AROUND[option](Failing(where=where)).whole_state()


class Forgetful(Mixing):
    """Mixes by how often it did, which its state lacks; around a rule of the package."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    def mixing(self, evidence: Evidence) -> Tensor:
        self.times += 1
        return torch.eye(len(evidence.senders), dtype=torch.float64) / self.times


def test_state_around_that_is_forgotten() -> None:
    """Only the innermost rule is looked at, and what differs is called its state."""
    for server, option in ((Forgetful(), "--server"), (FedOpt(rule=Forgetful()), "--server.rule")):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            federate(server, rounds=3)
        (told,) = [str(one.message) for one in caught if "state_dict" in str(one.message)]
        assert f"{option} Forgetful decides otherwise" in told
        assert "since its times is another" in told


class Drawing(Mixing):
    """Around a rule of the package, adds noise on a participant's side where its option says."""

    def __init__(self, *, where: str) -> None:
        super().__init__()
        self.where = where

    def mixing(self, evidence: Evidence) -> Tensor:
        return torch.eye(len(evidence.senders), dtype=torch.float64)

    def noised(self, where: str, vector: Tensor) -> Tensor:
        """The vector, noised if it is here."""
        return vector + 0.01 * torch.randn_like(vector) if where == self.where else vector

    def kept(self, update: Tensor) -> Tensor:
        return self.noised("kept", super().kept(update))

    def pack(self, upload: Tensor) -> Tensor:
        return super().pack(self.noised("pack", upload))

    def unpack(self, payload: Tensor, dimension: int) -> Tensor:
        return self.noised("unpack", super().unpack(payload, dimension))


class Disturbing(Callback):
    """Draws from torch's stream before every round, as whoever shares a process may."""

    def on_train_batch_start(self, *_: Any) -> None:
        torch.rand(3)


@pytest.mark.parametrize("where", ["kept", "pack", "unpack"])
def test_what_is_drawn_around_a_rule_of_the_package(where: str) -> None:
    """It depends on who shares a process: on two ranks it is another run than on one."""
    alone, beside = (federate(Drawing(where=where), [], *also).cohort.weights for also in ([], [Disturbing()]))
    assert torch.equal(alone, beside)


def test_whose_mistake_it_is() -> None:
    """The first of one's own, from outside; of the package's rules alone the outermost."""
    own = Failing(where="")
    around = Drawing(where="")
    assert NNM(rule=ARC(rule=own)).answerable is own
    assert FedOpt(rule=around).answerable is around
    packaged = NNM(rule=ARC())
    assert packaged.answerable is packaged
