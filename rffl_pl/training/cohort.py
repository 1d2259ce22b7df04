"""The participants that one rank hosts, their networks as views of flat parameters, and local training."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rffl_pl.errors import GO_ON, UserError, ones_own, path_of
from rffl_pl.functional.fingerprints import checksum
from rffl_pl.functional.finite import all_finite
from rffl_pl.functional.kept import kept_apart
from rffl_pl.functional.streams import random_stream
from rffl_pl.training.layout import channels_last
from rffl_pl.training.objective import LocalRound, Objective, check_loss, check_remembered
from rffl_pl.training.parameters import (
    aligned_rows,
    bind,
    flat_parameters,
    layer_sizes,
    running_statistics,
    trainable,
)
from rffl_pl.training.scaffold import Corrections
from rffl_pl.training.schedule import Examples, OptimizerFactory, Schedule, loss_on, make_optimizer
from rffl_pl.training.stack import Stack, Turn

LossOf = Callable[[Tensor, Tensor], Tensor]
"""Of inputs and classes."""
Guard = Callable[[], AbstractContextManager[None]]


class Cohort:
    """Hosted participants with their own parameters, buffers and optimizer state.

    Shapes: n = hosted participants, D = parameters that require gradients, in ``module.parameters()`` order. Only these
    train and travel: frozen ones are shared by all, so that an adapter on a large frozen model is a small D. Buffers
    stay with their participant: what is downloaded moves parameters alone. So do BatchNorm's running statistics, but
    where all have one model (`rffl_pl.round.running`).

    Args:
        network: The network every participant starts from; it is copied, never trained.
        participants: Their numbers, n of them; rows and lists below are in this order.
        optimizer: Makes a participant's optimizer from its parameters.
        device: Where everything lives.
        loss: What a mini-batch is trained by; a module is copied. By default cross-entropy.
        stacked: Whether all train at once (`rffl_pl.training.stack`), which changes results by rounding alone, and
            what dropout draws on a GPU; the network and the optimizer must allow it.
        channels_last: Whether images are given to the network with channels last, or as they come.
        scaffold: Whether every step is corrected towards where the last round went (`rffl_pl.training.scaffold`), which
            takes plain SGD.
        objective: What a mini-batch is trained by in place of the loss, which it is given; not with ``stacked``.
        draws: Whether the network draws at random in evaluation too, as for Monte Carlo dropout.

    Raises:
        UserError: If the network has no parameters to train or some that are not float32.

    Attributes:
        row: Which row is a participant's, by its number.
        weights: ``[n, D]``; every participant's network is a view into its row.
        updates: ``[n, D]``: a participant's weights before the round while it trains, then its update or its upload.
        networks: The n networks.
        optimizers: The n optimizers; their state stays with the participant over the rounds.
        memories: What else a participant keeps over the rounds: one dictionary each, the server's class fills it.
        attack_memories: One dictionary each for what the participant's attack remembers; empty for the honest.
        objective_memories: One dictionary each for what the objective remembers of a participant.
        corrections: What is added to their gradients; None without ``scaffold``.
    """

    def __init__(
        self,
        network: nn.Module,
        participants: Sequence[int],
        optimizer: OptimizerFactory,
        device: torch.device,
        *,
        loss: nn.Module | None = None,
        stacked: bool = False,
        channels_last: bool = True,
        scaffold: bool = False,
        objective: Objective | None = None,
        draws: bool = False,
    ) -> None:
        self.participants = list(participants)
        self.channels_last, self.draws = channels_last, draws
        self.row = {participant: index for index, participant in enumerate(self.participants)}
        layer_sizes(network)  # refuses what cannot be hosted
        self.weights = aligned_rows(flat_parameters(network).to(device), len(self.participants))
        self.updates = aligned_rows(self.weights.new_zeros(self.weights.shape[1]), len(self.participants))
        template = copy.deepcopy(network).to(device)
        frozen = {id(p): p for p in template.parameters() if not p.requires_grad}
        self.networks = [bind(copy.deepcopy(template, dict(frozen)), row) for row in self.weights]
        self.optimizers = [make_optimizer(optimizer, net) for net in self.networks]
        self._initial_rates = [[group["lr"] for group in o.param_groups] for o in self.optimizers]
        self.memories: list[dict[str, Tensor]] = [{} for _ in self.networks]
        self.attack_memories: list[dict[str, Tensor]] = [{} for _ in self.networks]
        self.objective_memories: list[dict[str, Tensor]] = [{} for _ in self.networks]
        self.corrections = Corrections() if scaffold else None
        self._make_optimizer = optimizer
        self._rate_sums: dict[int, float] = {}
        self._unsound: set[int] = set()
        self._loss = loss_on(device, loss)
        self._objective = objective
        made = self.optimizers[0]
        self._stack = Stack(template, made, self._loss, channels_last=channels_last) if stacked else None

    def train_all(
        self,
        examples: Mapping[int, Examples],
        schedule: Schedule,
        round_index: int,
        seeds: Mapping[int, int],
        anchors: Mapping[int, Tensor] | None = None,
    ) -> dict[int, float]:
        """Local training of several participants in one round, as `train` does, or all at once.

        Args:
            examples: The training examples of those who train, by row.
            schedule: Local epochs or steps, and learning-rate decay.
            round_index: The round, counted from 0.
            seeds: Of their streams, by row.
            anchors: What the proximal terms draw to, by row; see `train`.

        Returns:
            Their mean training losses of the last local epoch, by row.
        """
        anchors = anchors or {}
        if self._stack is None or not examples:
            return {
                i: self.train(i, found, schedule, round_index, seeds[i], anchors.get(i))
                for i, found in examples.items()
            }
        turns = [self._turn(i, found, schedule, seeds[i], anchors.get(i)) for i, found in examples.items()]
        (initial,) = self._initial_rates[0]
        rates = [initial * schedule.rate(round_index, epoch) for epoch in range(schedule.passes)]
        if self.corrections is not None:
            self._rate_sums = {i: sum(rates) * schedule.of(found).batches for i, found in examples.items()}
        losses = dict(zip(examples, self._stack.train(turns, rates), strict=True))
        for index, loss in losses.items():
            self._settle(index, loss, list(self.networks[index].buffers()))  # which a stack leaves as they are
        return {index: float(loss) for index, loss in losses.items()}

    def train(
        self,
        index: int,
        examples: Examples,
        schedule: Schedule,
        round_index: int,
        seed: int,
        anchor: Tensor | None = None,
    ) -> float:
        """Local training of the ``index``-th participant in one round.

        Everything random (order of examples, dropout) comes from the stream of ``seed``, so that the result does not
        depend on who else is hosted here. Where the loss or the weights stop being finite, the participant falls back
        to where it stood before the round, its optimizer begins anew, and its update is NaN.

        Args:
            index: Row of the participant.
            examples: Its training examples.
            schedule: Local epochs or steps, and learning-rate decay.
            round_index: The round, counted from 0.
            seed: Seed of the participant's stream in this round.
            anchor: The weights ``[D]`` that the proximal term draws to; by default those before the round.

        Returns:
            The mean training loss of the last local epoch.
        """
        turn = self._turn(index, examples, schedule, seed, anchor)
        buffers = [buffer.clone() for buffer in self.networks[index].buffers()]
        self._rate_sums[index] = 0.0
        with random_stream(seed, self.weights.device), self._minimising(index, round_index) as minimised:
            for epoch in range(schedule.passes):
                loss = self._train_epoch(index, schedule.rate(round_index, epoch), turn, *minimised)
            self.networks[index].zero_grad(set_to_none=True)  # those of all participants would be another [n, D]
            self._settle(index, loss, buffers)
        return float(loss)

    @contextmanager
    def _minimising(self, index: int, round_index: int) -> Iterator[tuple[LossOf, Guard]]:
        """The loss function that a participant minimises in a round, and the context in which its gradient is taken.

        With an objective it is the objective's, whose `begin` and `end` are called here too. Where training fails, the
        objective's memory goes back to before the round, as the weights do.
        """
        objective, network = self._objective, self.networks[index]
        participant, memory = self.participants[index], self.objective_memories[index]
        if objective is None:

            def of_logits(x: Tensor, y: Tensor) -> Tensor:
                with ones_own(network, "--model.network", f"train participant {participant}", GO_ON):
                    logits = network(x)
                return self._criterion(logits, y)

            yield of_logits, nullcontext
            return
        before = _copied(memory, self.weights.device)
        here = LocalRound(round=round_index, participant=participant, criterion=self._criterion, memory=memory)

        def its_own() -> AbstractContextManager[None]:
            doing = f"train participant {participant} in round {round_index + 1}"
            return ones_own(objective, "--model.objective", doing, GO_ON)

        def loss_of(x: Tensor, y: Tensor) -> Tensor:
            with its_own():
                return check_loss(objective, objective.loss(network.train(), x, y, here))

        # In training mode: what was measured before, and with whom, leaves a network in either.
        with torch.no_grad(), its_own():
            objective.begin(network.train(), here)
        torch.clear_autocast_cache()  # before torch 2.10 it keeps weights for the first step that no gradient reaches
        self._check_memory(index)
        yield loss_of, its_own
        if index in self._unsound:
            self.objective_memories[index] = before
            return
        with torch.no_grad(), its_own():
            objective.end(network.train(), here)
        self._check_memory(index)

    def _check_memory(self, index: int) -> None:
        """See to what an objective remembers of a participant: tensors, and none that training writes to."""
        assert self._objective is not None
        memory = self.objective_memories[index]
        check_remembered(self._objective, memory)
        kept_apart(memory, self.weights[index], *self.networks[index].buffers())

    def _criterion(self, logits: Tensor, y: Tensor) -> Tensor:
        """The loss of a mini-batch by its logits, one's own in single precision."""
        return self._loss(logits if self._loss is cross_entropy else logits.float(), y)

    def _turn(
        self,
        index: int,
        examples: Examples,
        schedule: Schedule,
        seed: int,
        anchor: Tensor | None,
    ) -> Turn:
        """What a participant trains by in a round, and how; where it stands now is kept in its row of `updates`."""
        before = self.updates[index].copy_(self.weights[index])
        return Turn(
            self.weights[index],
            self.optimizers[index],
            schedule.of(examples),
            seed,
            before if anchor is None else anchor,
            schedule.proximal,
            None if self.corrections is None else self.corrections.of(index),
        )

    def _settle(self, index: int, loss: Tensor, buffers: Sequence[Tensor]) -> None:
        """After training: back to where the round began, ``buffers`` too, where something is not finite."""
        row = self.weights[index]
        self._unsound.discard(index)
        if not (loss.isfinite() and all_finite(row)):
            self._unsound.add(index)
            row.copy_(self.updates[index])
            self.optimizers[index] = make_optimizer(self._make_optimizer, self.networks[index])
            for buffer, value in zip(self.networks[index].buffers(), buffers, strict=True):
                buffer.copy_(value)

    def take_update(self, index: int) -> Tensor:
        r"""Take the local update :math:`\Delta_i` ``[D]`` out of the weights, which go back to before the round.

        After `train`; the result is the participant's row of `updates`, NaN where training failed.
        """
        row, update = self.weights[index], self.updates[index]
        trained = row.clone()
        row.copy_(update)
        torch.sub(trained, row, out=update)
        if index in self._unsound:
            update.fill_(torch.nan)
        if self.corrections is not None:
            self.corrections.trained(index, update, self._rate_sums[index])
        return update

    def zero_update(self, index: int) -> Tensor:
        """The update ``[D]`` of a participant that does not train: zeros, in its row of `updates`."""
        self._unsound.discard(index)
        return self.updates[index].zero_()

    def integrate(self, index: int, step: Tensor) -> None:
        """Add a step ``[D]`` to the ``index``-th participant's weights; nothing if it is not finite."""
        if all_finite(step):
            self.weights[index] += step

    def download(self, index: int, step: Tensor, *, whole: bool) -> None:
        """`integrate` the step that a participant downloads, and correct its next round's training by it.

        Args:
            index: Its row.
            step: ``[D]``.
            whole: Whether all entries are downloaded; otherwise those that are 0 were not.
        """
        self.integrate(index, step)
        if self.corrections is not None:
            self.corrections.downloaded(index, step, whole=whole)

    @torch.no_grad()
    def loss(self, index: int, examples: Examples) -> float:
        """Mean loss of the ``index``-th participant on its own examples; NaN without any.

        Of a loss that is not the mean over a batch's examples, the mean of its batches by their sizes.
        """
        total, count = torch.zeros((), dtype=torch.float64, device=self.weights.device), 0
        for x, y in examples.in_order():
            y = y.to(self.weights.device, torch.int64, non_blocking=True)
            logits = self.logits(x, index).float()
            summed = self._loss is cross_entropy
            total += cross_entropy(logits, y, reduction="sum") if summed else self._loss(logits, y) * len(y)
            count += len(y)
        return float(total) / count if count else float("nan")

    def logits(self, x: Tensor, index: int) -> Tensor:
        """Class logits ``[B, C]`` of the ``index``-th participant for inputs ``[B, ...]``.

        What its network draws for them is the same whoever is hosted here, and for equal models, of which one is asked.
        """
        network, whose = self.networks[index], self.participants[index]
        drawn = random_stream(0, self.weights.device) if self.draws else nullcontext()
        with ones_own(network, "--model.network", f"give participant {whose}'s logits", GO_ON), drawn:
            logits: Tensor = network.eval()(self.placed(x))
        return logits

    def placed(self, x: Tensor) -> Tensor:
        """Inputs on the device, images as the network takes them."""
        x = x.to(self.weights.device, non_blocking=True)
        return channels_last(x) if self.channels_last else x

    def distinct(self) -> list[int]:
        """For every hosted participant the first whose model equals its own, so that each model is evaluated once."""
        first: list[int] = []
        alike: dict[tuple[int, ...], list[int]] = {}  # equal models have equal fingerprints; few others do
        for index in range(len(self.participants)):
            candidates = alike.setdefault(self._fingerprint(index), [])
            same = next((j for j in candidates if self._same_model(j, index)), index)
            if same == index:
                candidates.append(index)
            first.append(same)
        return first

    def statistics(self, index: int) -> Tensor:
        """The running statistics ``[S]`` of the ``index``-th participant's network, a copy."""
        return torch.cat([buffer.flatten() for buffer in running_statistics(self.networks[index])])

    def set_statistics(self, index: int, values: Tensor) -> None:
        """Have the ``index``-th participant's running statistics be others ``[S]``."""
        buffers = running_statistics(self.networks[index])
        for buffer, part in zip(buffers, values.split([b.numel() for b in buffers]), strict=True):
            buffer.copy_(part.view(buffer.shape))

    def train_in_stack_of(self, other: Cohort) -> None:
        """Share the stack of another cohort with the same network, so that the examples lie on the device once."""
        self._stack = other._stack

    def take_over(self, index: int, other: Cohort) -> None:
        """Have a participant's model, buffers too, be the one that it has in another cohort."""
        self.weights[index].copy_(other.weights[index])
        for buffer, theirs in zip(self.networks[index].buffers(), other.networks[index].buffers(), strict=True):
            buffer.copy_(theirs)

    def network_state(self, index: int, *, without: Collection[str] = ()) -> dict[str, Tensor]:
        """A plain state_dict of one participant's network, but for some entries, that owns its memory, on the CPU."""
        held = self.networks[index].state_dict()
        return {name: value.detach().cpu().clone() for name, value in held.items() if name not in without}

    def state_dict(self, index: int) -> dict[str, Any]:
        """All that a checkpoint keeps of the ``index``-th participant; frozen parameters are the network's own."""
        # On the CPU: another rank's GPU may not exist where this is read.
        optimizer = apply_to_collection(self.optimizers[index].state_dict(), Tensor, lambda t: t.detach().cpu().clone())
        optimizer = apply_to_collection(optimizer, np.float64, float)  # of NumPy's logspace, say
        added = {} if self.corrections is None else {"scaffold": self.corrections.state_dict(index)}
        added |= {} if self._objective is None else {"objective": self.objective_memories[index]}
        whose = {} if self._objective is None else {"objective_class": path_of(type(self._objective))}
        return {
            "network": self.network_state(index, without=self._frozen(index)),
            "optimizer": optimizer,
            "memory": _copied(self.memories[index], torch.device("cpu")),
            "attack": _copied(self.attack_memories[index], torch.device("cpu")),
            **{name: _copied(memory, torch.device("cpu")) for name, memory in added.items()},
            **whose,
        }

    def _frozen(self, index: int) -> dict[str, nn.Parameter]:
        """What does not train, by each of the names that it has where layers share it."""
        named = self.networks[index].named_parameters(remove_duplicate=False)
        return {name: parameter for name, parameter in named if not parameter.requires_grad}

    def load_state_dict(self, index: int, state: dict[str, Any], *, training: bool = True) -> None:
        """Restore what `state_dict` gave: all of it to go on ``training``, else the network alone."""
        self.networks[index].load_state_dict({**self._frozen(index), **state["network"]})
        if not training:
            return
        _restore(self.optimizers[index], state["optimizer"])
        self.memories[index] = _copied(state["memory"], self.weights.device)
        self.attack_memories[index] = _copied(state["attack"], self.weights.device)
        if self._objective is not None:
            before, here = state.get("objective_class"), path_of(type(self._objective))
            if state.get("objective") and before != here and index == 0:
                rank_zero_warn(
                    f"Participants begin with an empty memory of --model.objective {here}, since the checkpoint's is "
                    f"of {before}; give that one to go on with it."
                )
            remembered = state.get("objective", {}) if before == here else {}
            self.objective_memories[index] = _copied(remembered, self.weights.device)
        if self.corrections is not None:
            self.corrections.load_state_dict(index, _copied(state.get("scaffold", {}), self.weights.device))

    def _train_epoch(self, index: int, rate: float, turn: Turn, loss_of: LossOf, guard: Guard) -> Tensor:
        self.networks[index].train()
        optimizer = self.optimizers[index]
        for group, initial in zip(optimizer.param_groups, self._initial_rates[index], strict=True):
            group["lr"] = initial * rate
        total, count = torch.zeros((), device=self.weights.device), 0
        added: list[tuple[nn.Parameter, Tensor]] = []
        for x, y in turn.examples.epoch():
            y = y.to(self.weights.device, torch.int64, non_blocking=True)
            kept = [buffer.clone() for buffer in self.networks[index].buffers()] if len(y) == 1 else []
            try:
                loss = loss_of(self.placed(x), y)
            except ValueError as error:
                if len(y) > 1 or "more than 1 value per channel" not in str(error):
                    raise
                for buffer, value in zip(self.networks[index].buffers(), kept, strict=True):
                    buffer.copy_(value)  # which layers before that one have changed
                continue  # batch normalisation has no variance of a single example: a last one is left out
            optimizer.zero_grad(set_to_none=True)
            with guard():
                loss.backward()
            self._add_to_gradients(index, turn, added)
            optimizer.step()
            self._rate_sums[index] += optimizer.param_groups[0]["lr"]
            torch.clear_autocast_cache()  # the weights it holds in lower precision have just changed
            total += loss.detach() * len(y)  # stays on the device: no synchronisation per step
            count += len(y)
        if count == 0:
            raise UserError(
                "Expected mini-batches of at least two examples for the batch normalisation of --model.network, but "
                f"participant {self.participants[index]} has none; give it a second example and --data.batch_size of "
                "at least 2, or take a network without batch normalisation."
            )
        return total / count

    def _add_to_gradients(self, index: int, turn: Turn, added: list[tuple[nn.Parameter, Tensor]]) -> None:
        """Add to gradients the proximal term's and the correction; ``added`` keeps the latter between steps."""
        if turn.proximal or turn.correction is not None:
            for parameter in trainable(self.networks[index]):  # of sparse embeddings, to which nothing can be added
                if parameter.grad is not None and parameter.grad.is_sparse:
                    parameter.grad = parameter.grad.to_dense()
        if turn.proximal:
            for parameter, part in self._by_parameter(index, self.weights[index] - turn.anchor):
                if parameter.grad is not None:
                    parameter.grad.add_(part, alpha=turn.proximal)
        if turn.correction is not None and not added:
            added += [_laid_out(*pair) for pair in self._by_parameter(index, turn.correction)]
        for parameter, part in added:
            if parameter.grad is not None:
                parameter.grad.add_(part)

    def _by_parameter(self, index: int, flat: Tensor) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Every parameter that trains with its part of a vector ``[D]``, in its shape."""
        parameters = trainable(self.networks[index])
        for parameter, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
            yield parameter, part.view(parameter.shape)

    def _fingerprint(self, index: int) -> tuple[int, ...]:
        """Sums of the bits of weights and buffers."""
        tensors = [self.weights[index], *self._measured(index)]
        return tuple(map(checksum, tensors))

    def _same_model(self, a: int, b: int) -> bool:
        pairs = zip(self._measured(a), self._measured(b), strict=True)
        return torch.equal(self.weights[a], self.weights[b]) and all(torch.equal(x, y) for x, y in pairs)

    def _measured(self, index: int) -> list[Tensor]:
        """The buffers that evaluation may go by: not how many batches a layer has trained on."""
        named = self.networks[index].named_buffers()
        return [buffer for name, buffer in named if name.rpartition(".")[2] != "num_batches_tracked"]


def _laid_out(parameter: nn.Parameter, part: Tensor) -> tuple[nn.Parameter, Tensor]:
    """A parameter's part of a vector in the memory layout of its gradient, to which it is then added much faster."""
    return parameter, torch.empty_like(part if parameter.grad is None else parameter.grad).copy_(part)


def _restore(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Restore what an optimizer's ``state_dict`` gave, in the dtypes that it had: torch casts to the parameters'."""
    optimizer.load_state_dict(state)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, kept in state["state"].items():
        restored = optimizer.state[parameters[number]]
        for name, now in restored.items():  # one of a user's own may take less, or something else in its place
            value = kept.get(name)
            if isinstance(value, Tensor) and isinstance(now, Tensor) and value.dtype != now.dtype:
                restored[name] = value.to(now.device, copy=True)


def _copied(memory: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """A memory that shares nothing with the one given; what is learnt in it goes on to be learnt."""
    copies = {name: value.detach().to(device, copy=True) for name, value in memory.items()}
    return {name: value.requires_grad_() if memory[name].requires_grad else value for name, value in copies.items()}
