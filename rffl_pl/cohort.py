"""The participants that one rank hosts: flat parameters, their networks as views of them, and local training."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from rffl_pl.errors import UserError
from rffl_pl.federation import Federation

Batches = Iterable[tuple[Tensor, Tensor]]
OptimizerFactory = Callable[[Iterable[nn.Parameter]], Optimizer]


class Examples(Protocol):
    """A participant's training examples, e.g. `rffl_pl.datamodules.rounds.Shard`."""

    def epoch(self) -> Batches:
        """Mini-batches of one pass, in an order drawn from the surrounding random stream."""

    def in_order(self) -> Batches:
        """Mini-batches of one pass in a fixed order."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Local training.

    Args:
        epochs: Local epochs E per round.
        decay: Factor on the learning rate.
        decay_every: Decay with every local ``epoch`` (released code) or every ``round`` (paper).

    Raises:
        UserError: If `epochs` is below 1 or `decay` not positive.
    """

    epochs: int = 3
    decay: float = 0.977
    decay_every: Literal["epoch", "round"] = "epoch"

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise UserError(f"Expected --model.local_epochs to be at least 1, but got {self.epochs}.")
        if self.decay <= 0:
            raise UserError(f"Expected --model.lr_decay to be positive, but got {self.decay}; 1 is no decay.")

    def rate(self, round_index: int, epoch: int) -> float:
        """Factor on the learning rate in one local epoch of one round, both counted from 0."""
        return self.decay ** (round_index if self.decay_every == "round" else round_index * self.epochs + epoch)


class Cohort:
    """Hosted participants with their own parameters, buffers and optimizer state.

    Shapes: n = hosted participants, D = parameters in ``module.parameters()`` order.

    Args:
        network: The network every participant starts from; it is copied, never trained.
        participants: Their numbers, n of them; rows and lists below are in this order.
        optimizer: Makes a participant's optimizer from its parameters.
        device: Where everything lives.

    Raises:
        UserError: If the network has no parameters or some that are not float32.

    Attributes:
        weights: ``[n, D]``; every participant's network is a view into its row.
        before: ``[n, D]``, the weights at the start of the round.
        networks: The n networks.
        optimizers: The n optimizers; their state stays with the participant over the rounds.
        memories: What else a participant keeps over the rounds: one dictionary each, the server's class fills it.
    """

    def __init__(
        self, network: nn.Module, participants: Sequence[int], optimizer: OptimizerFactory, device: torch.device
    ) -> None:
        self.participants = list(participants)
        layer_sizes(network)  # refuses what cannot be hosted
        self.weights = _aligned_rows(flat_parameters(network).to(device), len(self.participants))
        self.before = self.weights.clone()
        self.networks = [_bind(copy.deepcopy(network).to(device), row) for row in self.weights]
        self.optimizers = [make_optimizer(optimizer, net) for net in self.networks]
        if isinstance(self.optimizers[0], torch.optim.LBFGS):
            raise UserError("Expected --model.optimizer to step without a closure, but got LBFGS; take SGD or Adam.")
        self._initial_rates = [[group["lr"] for group in o.param_groups] for o in self.optimizers]
        self.memories: list[dict[str, Tensor]] = [{} for _ in self.networks]
        self._buffers_before: list[list[Tensor]] = []

    def train_round(
        self, examples: Mapping[int, Examples], schedule: Schedule, federation: Federation, round_index: int
    ) -> Iterator[tuple[int, float]]:
        """Local training of one round, participant after participant.

        Everything random (order of examples, dropout) comes from a stream of the participant and the round, so that
        the result does not depend on who else is hosted here. A participant whose loss or weights stop being finite
        falls back to where it stood before the round (`revert_unsound`); until then its row of `updates` is not finite.

        Args:
            examples: The training examples of whoever trains, by participant.
            schedule: Local epochs and learning-rate decay.
            federation: Gives the seeds.
            round_index: The round, counted from 0.

        Yields:
            Every participant that trained, with the mean training loss of its last local epoch.
        """
        self.before.copy_(self.weights)
        self._buffers_before = [[buffer.clone() for buffer in net.buffers()] for net in self.networks]
        for index, participant in enumerate(self.participants):
            if participant not in examples:
                continue
            with random_stream(federation.seed_for("training", participant, round_index), self.weights.device):
                for epoch in range(schedule.epochs):
                    loss = self._train_epoch(index, examples[participant].epoch(), schedule.rate(round_index, epoch))
            if not loss.isfinite():
                self.weights[index] = torch.nan
            yield participant, float(loss)

    def updates(self) -> Tensor:
        r"""The local updates :math:`\Delta_i`, ``[n, D]``: weights now less weights at the start of the round."""
        return self.weights - self.before

    def integrate(self, own: Tensor, downloads: Mapping[int, Tensor]) -> None:
        r""":math:`w_i \leftarrow w_i^{before} + \Delta_i + \mathrm{download}_i`.

        Args:
            own: What every hosted participant keeps of its own update, ``[n, D]``; nothing of a row that is not finite.
            downloads: The step ``[D]`` of whoever received one, by participant.
        """
        sound = own.isfinite().all(1, keepdim=True)
        torch.add(self.before, torch.where(sound, own, 0.0), out=self.weights)
        for index, participant in enumerate(self.participants):
            if participant in downloads:
                self.weights[index] += downloads[participant]

    def revert_unsound(self) -> None:
        """Put every participant whose weights are not finite back to the start of the round, its optimizer anew."""
        for index in (~self.weights.isfinite().all(1)).nonzero().flatten().tolist():
            self.weights[index] = self.before[index]
            self.optimizers[index].state.clear()
            for buffer, value in zip(self.networks[index].buffers(), self._buffers_before[index], strict=True):
                buffer.copy_(value)

    @torch.no_grad()
    def losses(self, examples: Mapping[int, Examples]) -> Tensor:
        """Mean cross-entropy of every hosted participant on its own examples, ``[n]`` float64; NaN without any."""
        means = torch.full((len(self.participants),), torch.nan, dtype=torch.float64)
        for index, participant in enumerate(self.participants):
            if participant in examples:
                total, count = torch.zeros((), dtype=torch.float64, device=self.weights.device), 0
                for x, y in examples[participant].in_order():
                    y = y.to(self.weights.device, torch.int64, non_blocking=True)
                    total += cross_entropy(self.logits(x, index).float(), y, reduction="sum")
                    count += len(y)
                means[index] = total / max(count, 1)
        return means

    def logits(self, x: Tensor, index: int) -> Tensor:
        """Class logits ``[B, C]`` of the ``index``-th hosted participant for inputs ``[B, ...]``."""
        return self.networks[index].eval()(self.placed(x))

    def placed(self, x: Tensor) -> Tensor:
        """Inputs on the device; images with channels last, which convolutions run up to twice as fast on."""
        x = x.to(self.weights.device, non_blocking=True)
        if x.dim() != 4:
            return x
        # `contiguous` would leave one-channel images with strides that convolutions read as channels first.
        return torch.empty_like(x, memory_format=torch.channels_last).copy_(x)

    def distinct(self) -> list[int]:
        """For every hosted participant the first whose model equals its own, so that each model is evaluated once."""
        first: list[int] = []
        for index, row in enumerate(self.weights):
            same = (j for j in sorted(set(first)) if torch.equal(self.weights[j], row) and self._same_buffers(j, index))
            first.append(next(same, index))
        return first

    def network_state(self, index: int) -> dict[str, Tensor]:
        """A plain state_dict of one participant's network that owns its memory, on the CPU."""
        return {name: value.detach().cpu().clone() for name, value in self.networks[index].state_dict().items()}

    def state_dict(self, index: int) -> dict[str, Any]:
        """All that a checkpoint keeps of the ``index``-th participant."""
        # On the CPU: another rank's GPU may not exist where this is read.
        optimizer = apply_to_collection(self.optimizers[index].state_dict(), Tensor, lambda t: t.detach().cpu().clone())
        memory = {name: value.cpu().clone() for name, value in self.memories[index].items()}
        return {"network": self.network_state(index), "optimizer": optimizer, "memory": memory}

    def load_state_dict(self, index: int, state: dict[str, Any], *, training: bool = True) -> None:
        """Restore what `state_dict` gave: all of it to go on ``training``, else the network alone."""
        self.networks[index].load_state_dict(state["network"])
        if not training:
            return
        self.optimizers[index].load_state_dict(state["optimizer"])
        memory = {name: value.to(self.weights.device) for name, value in state.get("memory", {}).items()}
        self.memories[index] = memory

    def _train_epoch(self, index: int, batches: Batches, rate: float) -> Tensor:
        network, optimizer = self.networks[index].train(), self.optimizers[index]
        for group, initial in zip(optimizer.param_groups, self._initial_rates[index], strict=True):
            group["lr"] = initial * rate
        total, count = torch.zeros((), device=self.weights.device), 0
        for x, y in batches:
            y = y.to(self.weights.device, torch.int64, non_blocking=True)
            loss = cross_entropy(network(self.placed(x)), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            torch.clear_autocast_cache()  # the weights it holds in lower precision have just changed
            total += loss.detach() * len(y)  # stays on the device: no synchronisation per step
            count += len(y)
        return total / max(count, 1)

    def _same_buffers(self, a: int, b: int) -> bool:
        pairs = zip(self.networks[a].buffers(), self.networks[b].buffers(), strict=True)
        return all(torch.equal(x, y) for x, y in pairs)


def make_optimizer(factory: OptimizerFactory, network: nn.Module) -> Optimizer:
    """A network's optimizer."""
    try:
        return factory(network.parameters())
    except ValueError as error:
        raise UserError(f"Expected --model.optimizer to fit, but {' '.join(str(error).split())}.") from error


def layer_sizes(network: nn.Module) -> list[int]:
    """Number of entries of every parameter tensor, in ``module.parameters()`` order.

    Raises:
        UserError: If the network has no parameters, lazy ones or some that are not float32.
    """
    if any(isinstance(p, nn.UninitializedParameter) for p in network.parameters()):
        raise UserError(f"Expected --model.network to know its sizes, but {type(network).__name__} has lazy layers.")
    sizes = [p.numel() for p in network.parameters()]
    if not sizes or any(p.dtype != torch.float32 for p in network.parameters()):
        raise UserError(
            f"Expected --model.network to have parameters, all of them float32, but {type(network).__name__} has "
            f"{len(sizes) or 'none'}; for lower precision give --trainer.precision bf16-mixed."
        )
    return sizes


def flat_parameters(network: nn.Module) -> Tensor:
    """All parameters as one new vector ``[D]``."""
    return torch.cat([p.detach().flatten() for p in network.parameters()])


def _aligned_rows(row: Tensor, count: int) -> Tensor:
    """``count`` copies of ``row`` ``[D]``, each starting at a multiple of 64 bytes.

    Matrix products pick their order of summation by alignment: a participant's bits must not depend on the row it has.
    """
    rows = row.new_empty(count, -(-len(row) // 16) * 16)[:, : len(row)]
    return rows.copy_(row)


def _bind(network: nn.Module, row: Tensor) -> nn.Module:
    """Make a network's parameters views into ``row`` ``[D]``."""
    for parameter, view in zip(network.parameters(), row.split(layer_sizes(network)), strict=True):
        parameter.data = view.view(parameter.shape)
    return network


@contextmanager
def random_stream(seed: int, device: torch.device) -> Iterator[None]:
    """Everything drawn inside, on the CPU or on ``device``, comes from this seed; outside nothing changes."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
