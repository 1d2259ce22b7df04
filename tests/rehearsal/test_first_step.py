"""What a step on copies shows before a run: what would train nothing, be shared, or be lost with an interruption."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from lightning import LightningModule
from torch import Tensor, nn

from rffl_pl import UserError
from rffl_pl.rehearsal.first_step import check_in_place, check_reach, check_step, check_training_mode
from rffl_pl.rehearsal.network import check_state
from rffl_pl.servers import FedAvg
from rffl_pl.training.parameters import astray, bind, flat_parameters
from rffl_pl.training.schedule import OptimizerFactory
from tests.runs import federate

SGD: OptimizerFactory = partial(torch.optim.SGD, lr=0.1)
X, Y = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 3


class Plain(nn.Module):
    """A layer, and a frozen one before it."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layer(self.frozen(x))
        return logits


class Normed(Plain):
    """Gives its weights another tensor."""

    def forward(self, x: Tensor) -> Tensor:
        self.layer.weight.data = torch.renorm(self.layer.weight.data, 2, 0, 1.0)
        return super().forward(x)


class Recurrent(nn.Module):
    """Has its layer's weights lie as cuDNN likes them, as many do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.LSTM(4, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.layer.flatten_parameters()
        logits: Tensor = self.head(self.layer(x.unsqueeze(1))[0][:, -1])
        return logits


def into_one_buffer(layer: nn.RNNBase) -> None:
    """What `flatten_parameters` does on a GPU."""
    weights = list(layer.parameters())
    with torch.no_grad():
        flat = torch.cat([weight.flatten() for weight in weights])
        for weight, view in zip(weights, flat.split([weight.numel() for weight in weights]), strict=True):
            weight.set_(view.view_as(weight))


class Merging(Plain):
    """Adds what trains to what does not for evaluation, as adapters do."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Parameter(torch.zeros(4, 1)), nn.Parameter(torch.ones(1, 4))
        self.merged = torch.tensor(False)

    def train(self, mode: bool = True) -> Merging:
        if bool(self.merged) == mode:
            self.frozen.weight.data += (self.up @ self.down).detach() * (-1 if mode else 1)
            self.merged = torch.tensor(not mode)
        return super().train(mode)

    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x)
        return logits if self.merged else logits + self.layer(x @ self.down.T @ self.up.T)


class Teaching(Plain):
    """Has a mean of its own weights over the steps."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher = nn.Linear(4, 3).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.teacher.weight.lerp_(self.layer.weight.detach(), 0.5)
        return super().forward(x)


class Closing(Plain):
    """Reaches a layer by a function that has it."""

    def __init__(self) -> None:
        super().__init__()
        self.head: Callable[[Tensor], Tensor] = lambda x: self.layer(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.frozen(x))


class Remembering(Plain):
    """Shifts its logits by what it has seen, as ``kind`` says where that is kept."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        if kind.startswith("buffer"):
            self.register_buffer("seen", torch.zeros(()), persistent=kind == "buffer")
        else:
            self.seen: Any = [0.0] if kind == "list" else torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x)
        mean = logits.mean().detach() + 1
        if self.kind == "list":
            self.seen.append(float(mean))
            return logits + torch.tensor(self.seen).sum()
        if self.kind != "unused":
            logits = logits + self.seen
        self.seen = mean
        return logits


class Spoiling(Plain):
    """Changes in training what its gradient needs."""

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.layer(self.frozen(x)).exp()
        return h.mul_(2) if self.training else h


class Naive(torch.optim.Optimizer):
    """Gives parameters other tensors."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.data = p.data - group["lr"] * p.grad


class Counting(torch.optim.SGD):
    """Counts its steps beside its state."""

    steps_taken = 0

    def step(self, closure: Any = None) -> Any:
        self.steps_taken += 1
        super().step(closure)


class Wanting(torch.optim.SGD):
    """Wants what nobody gives it."""

    def step(self, closure: Any = None) -> Any:
        assert closure is not None, "needs a closure"


class Unready(torch.optim.SGD):
    """Looks for an option that it is not given."""

    def __init__(self, parameters: Any, **options: Any) -> None:
        self.warm_up = options["warm-up"]
        super().__init__(parameters, **options)


class Dividing(torch.optim.SGD):
    """Divides by how many steps it has taken."""

    def step(self, closure: Any = None) -> Any:
        return 1 / 0


class Locked(Plain):
    """Keeps a lock."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class Sharing(Plain):
    """Has a buffer where a parameter lies, which the first copy ends."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", self.layer.weight.data)


class Buffered(Plain):
    """Has a buffer that is sparse or expanded, or that its first training makes or resizes."""

    def __init__(self, *, how: str) -> None:
        super().__init__()
        self.how = how
        made = {"sparse": torch.eye(3).to_sparse(), "expanded": torch.ones(1).expand(3), "grows": torch.zeros(0)}
        if how != "comes":
            self.register_buffer("seen", made.get(how))

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.how == "comes":
            self.register_buffer("seen", torch.ones(1))
        elif self.training and self.how == "is filled":
            self.seen = torch.ones(1)
        elif self.training and self.how == "grows":
            self.seen = torch.cat([self.seen, torch.ones(1)])
        return super().forward(x)


def hooked() -> nn.Module:
    network = Plain()
    network.layer.weight.register_hook(lambda grad: grad.clamp(-1e-3, 1e-3))
    return network


def tried(network: nn.Module, optimizer: OptimizerFactory = SGD) -> None:
    """As a run begins."""
    check_state(network)
    trained = check_step(optimizer, network, X, Y, None)
    check_training_mode(network, X)
    check_in_place(trained, X, Y)


@pytest.mark.parametrize(
    ("network", "optimizer", "message"),
    [
        (Plain, Naive, r"--model\.optimizer Naive to change parameters in place, but it gives layer\.weight another"),
        (Normed, SGD, r"--model\.network Normed to change parameters in place, but it gives layer\.weight another"),
        (Merging, SGD, r"network Merging to leave parameters that do not train as they are.* but frozen\.weight"),
        (Teaching, SGD, r"network Teaching to leave parameters that do not train as they are.* but teacher\.weight"),
        (hooked, SGD, r"--model\.network Plain to have no hooks on its parameters.* but layer\.weight has one"),
        (Closing, SGD, r"--model\.network Closing to use its own.* but it uses layer\.weight of the first one"),
        (
            lambda: torch.jit.script(nn.Linear(4, 3)),
            SGD,
            r"--model\.network to be written in Python, but .* torch\.jit",
        ),
        (Spoiling, SGD, r"test_first_step\.Spoiling to be trained, but RuntimeError: one of the variables needed for"),
        (Plain, partial(Wanting, lr=0.1), r"but a first step fails: AssertionError: needs a closure"),
        (Locked, SGD, r"test_first_step\.Locked to be copied, but TypeError: cannot pickle '_thread.lock' object"),
        (Sharing, SGD, r"--model\.network Sharing to tie weights .*, but seen only shares memory with layer\.weight"),
        (
            partial(Buffered, how="sparse"),
            SGD,
            r"dense .* but seen is sparse; register its indices and values, and make",
        ),
        (
            partial(Buffered, how="expanded"),
            SGD,
            r"dense .* but seen is expanded; register it as \.contiguous\(\) gives",
        ),
        (partial(Buffered, how="comes"), SGD, r"Buffered to keep .* as its constructor makes them, .* but seen comes,"),
        (
            partial(Buffered, how="is filled"),
            SGD,
            r"but seen comes, goes or changes its shape in training; register it",
        ),
        (partial(Buffered, how="grows"), SGD, r"but seen comes, goes or changes its shape in training; register it"),
        (Plain, partial(Unready, lr=0.1), r"--model\.optimizer to fit, but KeyError: 'warm-up'"),
        (Plain, partial(Dividing, lr=0.1), r"but a first step fails: ZeroDivisionError: division by zero"),
    ],
)
def test_what_would_train_something_else(
    network: Callable[[], nn.Module], optimizer: OptimizerFactory, message: str
) -> None:
    """Uploads would not be what is trained, or participants of one process would share it, and nobody would see."""
    with pytest.raises(UserError, match=message):
        tried(network(), optimizer)


def test_recurrent_layers_stay_in_their_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a GPU, where they are moved whenever networks call for it; and in copies, pickled ones too."""
    monkeypatch.setattr(nn.LSTM, "flatten_parameters", into_one_buffer)
    tried(Recurrent())
    network = Recurrent()
    row = flat_parameters(network)
    bind(network, row)(X)
    assert astray(network, row) is None
    for copied in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert copied.layer.flatten_parameters is network.layer.flatten_parameters


@pytest.mark.parametrize("kind", ["buffer", "unused"])
def test_what_is_kept(kind: str, recwarn: pytest.WarningsRecorder) -> None:
    """A buffer is in every checkpoint, and what nothing depends on may change."""
    tried(Remembering(kind))
    assert not recwarn.list


@pytest.mark.parametrize("kind", ["buffer that is not persistent", "list", "tensor"])
def test_what_no_checkpoint_keeps(kind: str) -> None:
    """Results would depend on an interruption; the run says so."""
    with pytest.warns(UserWarning, match=r"What --model\.network Remembering gives depends on seen, which changes"):
        tried(Remembering(kind))


def test_what_an_optimizer_keeps_to_itself() -> None:
    """Likewise."""
    with pytest.warns(UserWarning, match=r"steps_taken of --model\.optimizer Counting changes while it trains, and no"):
        tried(Plain(), partial(Counting, lr=0.1))


class Annealed(torch.optim.SGD):
    """Lowers its learning rate by itself."""

    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        for group in self.param_groups:
            group["lr"] *= 0.9


def scheduled(parameters: Any) -> torch.optim.Optimizer:
    """An optimizer with a scheduler, which lowers the learning rate later."""
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10)
    optimizer.register_step_post_hook(lambda *_: scheduler.step())
    return optimizer


@pytest.mark.parametrize("optimizer", [partial(Annealed, lr=0.1), scheduled])
def test_a_learning_rate_that_changes_by_itself(optimizer: OptimizerFactory) -> None:
    """It is set anew before every local epoch, and what a scheduler counts is lost by an interruption."""
    with pytest.warns(UserWarning, match=r"has its learning rate changed as it steps, but every local epoch begins"):
        tried(Plain(), optimizer)


def test_a_network_is_left_as_it_is() -> None:
    """Weights, gradients, mode and what it draws from."""
    network = Plain()
    network.layer.weight.grad = torch.ones(3, 4)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    tried(network)
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    assert torch.equal(network.layer.weight.grad, torch.ones(3, 4))
    assert network.layer.bias.grad is None
    assert network.training


def test_a_copy_that_reaches_the_first_network() -> None:
    """On a GPU it could not, and the sentence would be torch's of two devices."""
    with pytest.raises(UserError, match=r"it uses layer\.weight of the first one"):
        check_reach(Closing(), X, Y)
    check_reach(Plain(), X, Y)


class Lit(LightningModule):
    """Comes with a training of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layer(x.flatten(1))
        return logits


def test_a_network_with_a_training_of_its_own() -> None:
    """Its optimizer and its loss would be left out without a word."""
    with pytest.warns(UserWarning, match=r"--model\.network Lit is a LightningModule, of which participants train the"):
        federate(FedAvg(), rounds=1, network=Lit)


class Listed(nn.Module):
    """Has layers that torch knows nothing of."""

    def __init__(self, frozen: bool) -> None:
        super().__init__()
        self.layers = [nn.Linear(64, 64).requires_grad_(not frozen), nn.ReLU()]
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layers[1](self.layers[0](x.flatten(1))))
        return logits


def test_layers_in_a_list(recwarn: pytest.WarningsRecorder) -> None:
    """They would stay as they are, and no file would have them; of a teacher that is kept so nothing is said."""
    federate(FedAvg(), rounds=1, network=partial(Listed, frozen=True))
    assert not [one for one in recwarn if "Layers in" in str(one.message)]
    with pytest.warns(UserWarning, match=r"Layers in layers of --model\.network Listed neither train nor are kept"):
        federate(FedAvg(), rounds=1, network=partial(Listed, frozen=False))
