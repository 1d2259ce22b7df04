"""Networks that draw in evaluation, and parts of them that are left in evaluation mode."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from rffl_pl.errors import UserError
from rffl_pl.rehearsal.network import check_logits, check_state, warn_of_modes
from rffl_pl.runs import RunFolder
from rffl_pl.servers import FedAvg
from tests.cli.folders import Run, assert_same_bits
from tests.conftest import QUICK, only_run
from tests.ranks import forked
from tests.runs import federate


class Sampling(nn.Module):
    """Drops in evaluation too."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(nn.functional.dropout(self.hidden(x.flatten(1)).relu(), 0.5, training=True))
        return logits


def test_what_is_drawn_in_evaluation() -> None:
    """Equal models are measured once a rank: accuracies depended on who shares one and on what was measured before."""
    module = federate(FedAvg(), network=Sampling)
    cohort = module.new_cohort()
    x = torch.randn(7, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    before = torch.get_rng_state()
    one, other = (cohort.logits(x, index) for index in (0, 3))
    assert torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)
    assert not federate(FedAvg()).draws


class Seldom(Sampling):
    """Drops where there are many examples."""

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = super().forward(x) if len(x) > 2 else self.head(self.hidden(x.flatten(1)).relu())
        return logits


def test_what_is_drawn_of_some_batches_alone() -> None:
    """The last batch that a network is tried on, two training examples, decided for all before it."""
    assert federate(FedAvg(), network=Seldom, rounds=1).draws


@pytest.mark.slow
@pytest.mark.distributed
def test_accuracies_on_several_ranks(rffl: Run, tmp_path: Path) -> None:
    """Those of a network that draws depended on their number, and with them when a run ends early."""
    network = ("--model.network", f"{__name__}.Sampling")
    line = ("fit", "--config", "configs/digits.yaml", *QUICK, *network, "--trainer.max_epochs", 2)
    assert rffl(*line, "--run.root", tmp_path / "one").code == 0
    ended = forked(3, *line, root=tmp_path / "three")
    assert ended.code == 0, ended.err
    one, three = (only_run(tmp_path / name) for name in ("one", "three"))
    assert_same_bits(one, three)
    assert RunFolder(one).summary().final == RunFolder(three).summary().final
    assert RunFolder(one).rounds()[-1].measures["accuracy"] == RunFolder(three).rounds()[-1].measures["accuracy"]


class Frozen(nn.Module):
    """A part that is frozen, and a head."""

    def __init__(self, *, keeps: bool = False) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16)).requires_grad_(False).eval()
        self.head, self.keeps = nn.Linear(16, 10), keeps

    def train(self, mode: bool = True) -> Frozen:
        super().train(mode)
        if self.keeps:
            self.backbone.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.backbone(x))
        return logits


class Read(nn.Module):
    """A part that was read from a file, in evaluation mode, and trains; and one that is frozen and the same in both."""

    def __init__(self) -> None:
        super().__init__()
        self.read = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Dropout(0.5)).eval()
        self.fixed, self.head = nn.Linear(16, 16).requires_grad_(False).eval(), nn.Linear(16, 10)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (Read, False),
        (Frozen, True),
        (lambda: Frozen(keeps=True), False),
        (lambda: Frozen().eval(), False),
        (lambda: Frozen().train(), False),
    ],
    ids=["read", "left", "kept", "all", "none"],
)
def test_a_part_in_evaluation_mode(make: Callable[[], nn.Module], told: bool) -> None:
    """Its running statistics moved in silence."""
    network = make()
    modes = [layer.training for layer in network.modules()]
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        warn_of_modes(network)
    assert [layer.training for layer in network.modules()] == modes
    assert len(heard) == told
    assert not told or "backbone of --model.network Frozen is in evaluation mode" in str(heard[0].message)


def test_a_part_that_the_network_keeps_there() -> None:
    """As the warning says; and a run gives it."""
    with pytest.warns(UserWarning, match="call self.backbone.eval"):
        moved = federate(FedAvg(), network=Frozen)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*eval mode.*")  # Lightning's, which says that something may happen
        kept = federate(FedAvg(), network=lambda: Frozen(keeps=True))
    means = [module.cohort.networks[0].get_buffer("backbone.2.running_mean") for module in (moved, kept)]
    assert [bool((mean == 0).all()) for mean in means] == [False, True]


def test_trying_a_network_leaves_its_modes() -> None:
    """What was frozen in evaluation mode was in training mode, in the user's own network too."""
    network = Frozen()
    modes = [layer.training for layer in network.modules()]
    check_state(network)
    check_logits(network, torch.zeros(2, 64), classes=10, owner="Digits", whose="the test set's")
    assert [layer.training for layer in network.modules()] == modes
    assert len({*modes}) == 2


@pytest.mark.parametrize("hook", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_that_copies_do_not_have(hook: str) -> None:
    """Bounds on gradients, say, hold for nobody, and nothing tells."""
    network = nn.Linear(4, 3)
    getattr(network.bias, hook)(lambda found: None)
    with pytest.raises(UserError, match=r"Linear to have no hooks on its parameters, .* but bias has one"):
        check_state(network)


class Returning(Frozen):
    """Switches its modes and returns nothing, of which all that is asked for next fails."""

    def train(self, mode: bool = True) -> Returning:
        super().train(mode)
        return None  # type: ignore[return-value]  # as somebody does who has overridden it for a line


def test_modes_that_return_nothing() -> None:
    """It was a traceback, or a network that does not take the inputs."""
    with pytest.raises(UserError, match=r"train\(mode\) of --model.network Returning to return the network, as"):
        federate(FedAvg(), network=Returning)
