"""What a stack does not train as one model alone would, and why: such participants train one after another."""

from __future__ import annotations

import random
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from rffl_pl.models import Perceptron, TextCNN
from rffl_pl.training.schedule import OptimizerFactory
from rffl_pl.training.stack import refusal
from tests.cli.folders import DIGITS, Run
from tests.cohorts import batchnorm, mlp, sgd
from tests.training.test_stack import idle


class Tossed(nn.Linear):
    """Draws from a stream that all participants would have in common."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (1 + random.random())


class Noisy(nn.Linear):
    """Draws in its forward pass what no other engine knows of."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + torch.rand_like(x))


class Counting(nn.Linear):
    """Changes a buffer in its forward pass."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__(6, 3)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        return super().forward(x)


class Hooked(Perceptron):
    """Lowers gradients on their way back, by a hook of what it computes or of a layer."""

    def __init__(self, which: str) -> None:
        super().__init__(6, 8, 3)
        self.which = which
        if which == "layer":
            self[3].register_full_backward_hook(lambda *seen: (0.1 * seen[1][0],))

    def forward(self, x: Tensor) -> Tensor:
        h = self[2](self[1](x.flatten(1)))
        if self.which == "result" and h.requires_grad:
            h.register_hook(lambda grad: 0.1 * grad)
        logits: Tensor = self[3](h)
        return logits


class Clipping(nn.Module):
    """Bounds the gradient of what is between its layers, by one kind of hook or another."""

    def __init__(self, bound: float, layers: bool = False) -> None:
        super().__init__()
        self.first, self.last, self.bound = nn.Linear(6, 8), nn.Linear(8, 3), bound
        if layers:
            self.last.register_full_backward_hook(self._bounded)
            self.bound = float("inf")
        self.of_layers = bound

    def _bounded(self, layer: nn.Module, grads: Any, _: Any) -> Any:
        return (grads[0].clamp(-self.of_layers, self.of_layers),)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x).relu()
        if h.requires_grad:
            h.register_hook(lambda grad: grad.clamp(-self.bound, self.bound))
        logits: Tensor = self.last(h)
        return logits


class Dropping(nn.Module):
    """Dropout of what does not lie in memory as examples do, or is not one row for each."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where, self.drop = where, nn.Dropout(0.1, inplace=where == "in place")
        self.first, self.last = nn.Linear(2, 8), nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(-1, 3, 2)
        if self.where == "tokens":
            h = self.drop(self.first(x.reshape(-1, 2)))
        elif self.where == "time first":
            h = self.drop(self.first(x.transpose(0, 1))).transpose(0, 1)
        elif self.where == "transposed":
            h = self.drop(self.first(x).transpose(1, 2))
        elif self.where == "weights":
            h = linear(x, self.drop(self.first.weight), self.first.bias)
        else:
            h = self.first(x)
            h = self.drop(h) + h
        logits: Tensor = self.last(h.reshape(len(x), -1))
        return logits


class Recurrent(nn.Module):
    """Whose layer gives a pair."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.last = layer, nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(self.layer(x)[0])
        return logits


class Bounded(nn.Linear):
    """Keeps its weights short, in place."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.weight.renorm_(2, 0, 1.0)
        return super().forward(x)


def clipped(parameters: Any) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: None)
    return optimizer


def decaying(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, weight_decay=0.1)


@pytest.mark.parametrize(
    ("network", "optimizer", "why"),
    [
        (nn.Sequential(nn.BatchNorm1d(6, track_running_stats=False), nn.Linear(6, 3)), sgd, "shorter ones are filled"),
        (Counting(), sgd, "its buffer seen changes while it trains"),
        (idle(), decaying, "weights decay, but nothing uses idle"),
        (batchnorm(), sgd, "BatchNorm1d keeps statistics while it trains"),
        (Recurrent(nn.GRU(6, 4)), sgd, "torch.func.vmap has no rule for GRU"),
        (Recurrent(nn.LSTMCell(6, 4)), sgd, "torch.func.vmap has no rule for LSTMCell"),
        (Noisy(6, 3), sgd, "randomness"),
        (Tossed(6, 3), sgd, "it draws random numbers of Python's or NumPy's"),
        (mlp(), lambda p: torch.optim.RMSprop(p), "RMSprop with these options is none that is written for several"),
        (mlp(), lambda p: torch.optim.SGD(p, momentum=0.9, dampening=0.1), "SGD with these options"),
        (mlp(), lambda p: torch.optim.Adam(p, amsgrad=True), "Adam with these options"),
        (mlp(), lambda p: torch.optim.SGD([*p][:2], lr=0.1), "SGD steps some of the parameters alone"),
        (mlp(), lambda p: torch.optim.Adam([*p][::-1]), "or in an order of its own"),
        (mlp(), clipped, "steps of SGD have hooks"),
        (Hooked("result"), sgd, "it changes its gradients"),
        (Hooked("layer"), sgd, "it changes its gradients"),
        (Clipping(0.5), sgd, "it changes its gradients"),
        (Clipping(100.0), sgd, "it changes its gradients"),
        (Clipping(100.0, layers=True), sgd, "it changes its gradients"),
        (Bounded(6, 3), sgd, "modified inplace"),
    ],
)
def test_what_trains_one_after_another(network: nn.Module, optimizer: OptimizerFactory, why: str) -> None:
    """And why."""
    assert why in str(refusal(network, optimizer(network.parameters()), torch.randn(4, 6)))
    plain = mlp()
    assert refusal(plain, sgd(plain.parameters()), torch.randn(4, 6), moved=True) is None


@pytest.mark.parametrize("where", ["tokens", "time first", "transposed", "weights", "in place"])
def test_dropout_that_would_draw_otherwise(where: str) -> None:
    """Also where a single example is tried, as a run does: what follows it would not be dropped, or something else."""
    network = Dropping(where)
    assert "its dropout draws otherwise" in str(refusal(network, sgd(network.parameters()), torch.randn(1, 6)))


def test_what_nothing_uses_stays_where_it_is() -> None:
    """Corrections, and anchors elsewhere, would move it in a stack, and torch's optimizers do not."""
    network = idle()
    said = refusal(network, sgd(network.parameters()), torch.randn(4, 6), moved=True)
    assert said == "steps are drawn elsewhere, but nothing uses idle"


class Doubled(nn.Embedding):
    """An embedding of one's own, which looks up rows all the same."""


class Sentence(nn.Module):
    """Logits of token ids, by a mean over all of them or over those that are none of the padding."""

    def __init__(
        self, masked: bool = False, dropout: float = 0.0, kind: type[nn.Embedding] = nn.Embedding, **options: Any
    ) -> None:
        super().__init__()
        self.embedding = kind(60, 8, padding_idx=0, **options)
        self.dropout, self.linear, self.masked = nn.Dropout(dropout), nn.Linear(8, 3), masked

    def forward(self, x: Tensor) -> Tensor:
        found = self.dropout(self.embedding(x))
        if not self.masked:
            return self._logits(found.mean(1))
        there = (x != 0).unsqueeze(2)
        return self._logits((found * there).sum(1) / there.sum(1).clamp_min(1))

    def _logits(self, features: Tensor) -> Tensor:
        logits: Tensor = self.linear(features)
        return logits


class Centred(nn.Linear):
    """Takes the mean of the batch away."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x - x.mean(0))


@pytest.mark.parametrize(
    ("network", "why"),
    [
        (Sentence(), "depends on how many zeros are behind it"),
        (Sentence(masked=True, dropout=0.5), "depends on how many zeros are behind it"),
        (Sentence(masked=True, max_norm=1.0), "Embedding has max_norm"),
        (Sentence(masked=True, scale_grad_by_freq=True), "Embedding has scale_grad_by_freq"),
        (nn.Sequential(nn.EmbeddingBag(60, 8, max_norm=1.0), nn.Linear(8, 3)), "EmbeddingBag has max_norm"),
        (Sentence(masked=True, kind=Doubled), "torch.func.vmap trains the padding of Doubled"),
        (Sentence(masked=True), None),
        (TextCNN(vocabulary=60, classes=3, width=8, kernels=6), None),
        (nn.Sequential(nn.Embedding(60, 4), nn.Flatten(), nn.Linear(36, 3)), None),  # of nine words, always
    ],
    ids=[
        "mean",
        "dropout on words",
        "max_norm",
        "frequencies",
        "bag",
        "own embedding",
        "masked mean",
        "TextCNN",
        "of one length",
    ],
)
@pytest.mark.parametrize("count", [1, 4])
def test_sentences_that_are_filled_up(network: nn.Module, why: str | None, count: int) -> None:
    """A participant's training would depend on how long the sentences of others on its rank are."""
    x = torch.randint(1, 60, (count, 9), generator=torch.Generator().manual_seed(1))
    found = refusal(network, sgd(network.parameters()), x)
    assert found is None if why is None else why in str(found)


class Tempered(nn.Linear):
    """Divides its logits by a number that is learnt."""

    def __init__(self) -> None:
        super().__init__(6, 3)
        self.temperature = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / self.temperature


def test_a_parameter_of_one_number_is_stacked() -> None:
    """Participants would train one after another for no reason."""
    network = Tempered()
    assert refusal(network, sgd(network.parameters()), torch.randn(4, 6)) is None


class Scaled(nn.Linear):
    """By the largest entry of the batch."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x / x.abs().max())


class Logarithmic(Centred):
    """Of amounts, which are above 0: what is filled up with zeros has no number."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.abs().log())


class Masked(Centred):
    """Never gives the last class."""

    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x)
        return torch.cat([logits[:, :-1], torch.full_like(logits[:, -1:], -torch.inf)], 1)


class Codes(nn.Module):
    """Looks its inputs up, numbers of categories as they stand in a table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.table(x.long()).sum(1)
        return logits


@pytest.mark.parametrize("count", [1, 4])
def test_inputs_that_are_looked_up(count: int) -> None:
    """Others than there are were tried, which are in no table: an error, and on a GPU the end of the process."""
    x = torch.tensor([[9.0, 0.0, 4.0], [1.0, 9.0, 9.0], [2.0, 3.0, 4.0], [9.0, 9.0, 9.0]])[:count]
    network = Codes()
    assert refusal(network, sgd(network.parameters()), x) is None


@pytest.mark.parametrize("kind", [Centred, Scaled, Logarithmic, Masked])
@pytest.mark.parametrize("count", [1, 4])
def test_examples_that_see_each_other(count: int, kind: type[nn.Linear]) -> None:
    """A participant's training would depend on how many examples others on its rank have in a batch."""
    network, x = kind(6, 3), torch.randn(count, 6, generator=torch.Generator().manual_seed(1))
    assert "which others are in the batch" in str(refusal(network, sgd(network.parameters()), x))


def test_what_torch_has_no_rule_for(rffl: Run) -> None:
    """Stacked all the same, without a word of torch's, which asks users to report it."""
    asked = ("--trainer.max_epochs", 1, "--model.loss", "MultiMarginLoss", "--model.engine", "stacked")
    ended = rffl(*DIGITS, *asked)
    assert ended.code == 0, ended.err
    assert "one after another" not in ended.err
    assert "batching rule" not in ended.err


def test_a_run_says_why_it_is_not_stacked(rffl: Run) -> None:
    """Once, where the user asked for it."""
    asked = ("--trainer.max_epochs", 1, "--model.optimizer", "RMSprop", "--model.optimizer.lr", 0.001)
    ended = rffl(*DIGITS, *asked, "--model.engine", "stacked")
    assert ended.code == 0
    assert ended.err.count("one after another in spite of --model.engine stacked, since RMSprop") == 1
    with warnings.catch_warnings():
        assert "one after another" not in rffl(*DIGITS, *asked).err
