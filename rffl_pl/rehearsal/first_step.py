"""One step of training on copies, before a run begins: what cannot be trained, or kept, is told in time."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch.optim import SGD, Optimizer

from rffl_pl.errors import UserError, ones_own, reason
from rffl_pl.functional.fingerprints import changes, checksum, close, counts, fingerprint, left_alone, stays
from rffl_pl.functional.streams import random_stream
from rffl_pl.runs.settings import EVERY_MODULES, beside_state
from rffl_pl.training.objective import LocalRound, Loss, Objective, check_loss, check_remembered, not_trainable
from rffl_pl.training.parameters import astray, bind, flat_parameters, sharing_copy, trainable
from rffl_pl.training.schedule import OptimizerFactory, make_optimizer


def check_step(
    factory: OptimizerFactory, network: nn.Module, x: Tensor, y: Tensor, loss: nn.Module | None
) -> nn.Module:
    """Train a copy of a network for one step, so that what cannot be trained is told before a run.

    Args:
        factory: Makes the optimizer.
        network: It is left as it is.
        x: Inputs ``[B, ...]``, two at least: batch normalisation has no variance of a single example.
        y: Classes ``[B]``.
        loss: None is cross-entropy.

    Returns:
        The copy, after its step.

    Raises:
        UserError: If it cannot.
    """
    copied = sharing_copy(network).eval()
    row = flat_parameters(copied)
    optimizer = make_optimizer(factory, bind(copied, row))
    kept, rates = _kept_beside(optimizer), _rates(optimizer)
    if isinstance(optimizer, torch.optim.LBFGS):
        raise UserError("Expected --model.optimizer to step without a closure, but got LBFGS; take SGD or Adam.")
    try:
        with _reached_alone(network):
            logits = copied(x)
            if loss is None:
                found = cross_entropy(logits, y.long())
            else:  # on one more than classes: as many examples would hide a loss that mixes up the two
                rows = torch.arange(logits.shape[-1] + 1, device=logits.device) % len(logits)
                found = _tried(loss, logits[rows].float(), y[rows].long())
            found.backward()
        _check_bound(copied, row, f"--model.network {type(network).__name__}")
        optimizer.step()
        _check_bound(copied, row, f"--model.optimizer {type(optimizer).__name__}")
    except (UserError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:  # whatever somebody's own code meets
        raise UserError(
            f"Expected --model.optimizer {type(optimizer).__name__} to train --model.network "
            f"{type(network).__name__}, but a first step fails: {reason(error)}."
        ) from error
    if _rates(optimizer) != rates or hasattr(optimizer.step, "_wrapped_by_lr_sched"):
        rank_zero_warn(
            f"--model.optimizer {type(optimizer).__name__} has its learning rate changed as it steps, but every local "
            "epoch begins anew with the first one, times what --model.lr_decay says, and no checkpoint keeps what a "
            "scheduler counts; leave it as it is, and give --model.lr_decay."
        )
    elif changed := changes(kept, _kept_beside(optimizer)):
        rank_zero_warn(
            f"{changed[0]} of --model.optimizer {type(optimizer).__name__} changes while it trains, and no checkpoint "
            "keeps it: if results depend on it, they depend on interruptions; have it be in its state or a param_group."
        )
    return copied


def _rates(optimizer: Optimizer) -> list[float]:
    return [float(group["lr"]) for group in optimizer.param_groups]


def check_reach(network: nn.Module, x: Tensor, y: Tensor) -> None:
    """See that a copy of a network uses its own parameters, where both can: one on a GPU cannot use the first one's.

    Args:
        network: It is left as it is.
        x: Inputs ``[B, ...]``, two at least.
        y: Classes ``[B]``.

    Raises:
        UserError: If it does not.
    """
    with ones_own(network, "--model.network", "be trained"), _reached_alone(network):
        cross_entropy(sharing_copy(network).eval()(x).float(), y.long()).backward()


def _kept_beside(optimizer: Optimizer) -> dict[str, str]:
    """What an optimizer of one's own keeps that is not in its state_dict, by name."""
    if type(optimizer).__module__.startswith("torch."):
        return {}
    return {name: fingerprint(value) for name, value in beside_state(optimizer).items()}


@contextmanager
def _reached_alone(network: nn.Module) -> Iterator[None]:
    """Where a copy of a network is used and the network itself must not be.

    Raises:
        UserError: If gradients reach the network's own parameters.
    """
    before = [(parameter, parameter.grad) for parameter in network.parameters()]
    for parameter, _ in before:
        parameter.grad = None
    try:
        yield
        reached = [name for name, parameter in network.named_parameters() if parameter.grad is not None]
    finally:
        for parameter, grad in before:
            parameter.grad = grad
    if reached:
        raise UserError(
            f"Expected a copy of --model.network {type(network).__name__} to use its own parameters, as every "
            f"participant's does, but it uses {reached[0]} of the first one; have it reach it by self, not by a "
            "function that was made with it."
        )


def _check_bound(network: nn.Module, row: Tensor, whose: str) -> None:
    """See that a network's parameters are still views of a row, which is what travels.

    Raises:
        UserError: If one is none any more, as after ``p.data = ...``.
    """
    if (name := astray(network, row)) is not None:
        raise UserError(
            f"Expected {whose} to change parameters in place, but it gives {name} another tensor, and what it trains "
            "would not be what is sent; write p.data.copy_(...) for p.data = ..., or p.add_(...)."
        )


def check_in_place(trained: nn.Module, x: Tensor, y: Tensor) -> None:
    """See that what does not train stays as it is in training and in evaluation, and what does where it is.

    Args:
        trained: A copy of a network that may be trained, as `check_step` gives it.
        x: Inputs ``[B, ...]``, two at least, which the network takes in training.
        y: Classes ``[B]``.

    Raises:
        UserError: If not: all participants of a process share what does not train, and no checkpoint has it.
    """
    name, row = type(trained).__name__, flat_parameters(trained)
    frozen = {key: checksum(p) for key, p in bind(trained, row).named_parameters() if not p.requires_grad}
    trained.zero_grad(set_to_none=True)
    with ones_own(trained, "--model.network", "be trained"):
        cross_entropy(trained.train()(x).float(), y.long()).backward()
    with torch.no_grad(), ones_own(trained, "--model.network", "go from training to evaluation and back"):
        for p in trainable(trained):  # a step: adapters, which may be added to frozen layers, begin with zeros
            if p.grad is not None:
                p.sub_(0.1 * normalize(p.grad.to_dense().flatten(), dim=0).view_as(p))
        for training in (True, False, True):  # what is added for evaluation may be taken back for training
            trained.train(training)(x)
            _check_frozen(trained, frozen)
    _check_bound(trained, row, f"--model.network {name}")


def _check_frozen(network: nn.Module, before: Mapping[str, int]) -> None:
    now = {key: checksum(p) for key, p in network.named_parameters() if key in before}
    if changed := [key for key, found in now.items() if found != before[key]]:
        raise UserError(
            f"Expected --model.network {type(network).__name__} to leave parameters that do not train as they are, "
            f"since all participants of a process share them, but {changed[0]} changes; have it be a buffer, of which "
            "every participant has its own, or leave it alone, as LoRA's layers do by merge_weights=False."
        )


def _tried(loss: nn.Module, logits: Tensor, y: Tensor) -> Tensor:
    """What a copy of a loss makes of a batch.

    Raises:
        UserError: If it is no loss: parameters of its own would be trained by nobody, and what it keeps from batch to
            batch would depend on who shares a process.
    """
    name = type(loss).__name__
    with ones_own(
        loss, "--model.loss", "be copied", "have it call super().__init__() and keep nothing that cannot be copied"
    ):
        copied = copy.deepcopy(loss)
        counted = counts(copied)
    if any(p.requires_grad for p in loss.parameters()):
        raise UserError(
            f"Expected --model.loss to have nothing to train, but {name} has parameters; have them be buffers, or "
            "part of --model.network."
        )
    try:
        with left_alone(f"--model.loss {name} to leave classes as they are", y):
            found, again = (_drawn(copied, logits, y) for _ in range(2))
    except (UserError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:  # whatever somebody's own code meets
        raise UserError(
            f"Expected --model.loss {name} to take class logits of shape {list(logits.shape)} and as many classes, but "
            f"it fails: {reason(error)}."
        ) from error
    if (got := not_trainable(found, "logit")) is not None:
        raise UserError(
            f"Expected --model.loss {name} to give one number for a batch, which logits can be trained by, but got "
            f"{got}."
        )
    assert isinstance(found, Tensor)
    before = dict(loss.named_buffers())
    kept = [key for key, value in copied.named_buffers() if not torch.equal(value, before.get(key, found))]
    kept += changes(counted, counts(copied))
    one, other = found.detach(), again.detach()
    if kept or not torch.allclose(one, other, rtol=0, atol=0, equal_nan=True):
        how = f"{kept[0]} changes" if kept else f"it gives {one:g} and then {other:g} for the same one"
        raise UserError(f"Expected --model.loss {name} to keep nothing from batch to batch, but {how}.")
    return found


def check_objective(
    objective: Objective, factory: OptimizerFactory, network: nn.Module, x: Tensor, y: Tensor, loss: Loss
) -> None:
    """Train a copy of a network by an objective in two rounds of one step.

    Args:
        objective: A copy of it is tried.
        factory: Makes the optimizer.
        network: It is left as it is.
        x: Inputs ``[B, ...]``, two at least.
        y: Classes ``[B]``.
        loss: The criterion that the objective is given.

    Raises:
        UserError: If it fails, gives more than a number or one that depends on no parameter, gives parameters other
            tensors or has others train, keeps anything but tensors of a participant, or changes itself: results would
            depend on who shares a process.
    """
    name, memory = type(objective).__name__, dict[str, Tensor]()
    remedy = "have it keep tensors as .detach() gives them, and no locks or open files"
    with ones_own(objective, "--model.objective", "be copied", remedy):
        tried = copy.deepcopy(objective)
    copied = sharing_copy(network)
    row = flat_parameters(copied)
    optimizer = make_optimizer(factory, bind(copied, row))
    with stays(f"--model.objective {name}", tried, "keep what belongs to a participant in local.memory"):
        for number in range(2):
            # Of logits in single precision, as in training.
            here = LocalRound(round=number, participant=0, criterion=lambda z, y: loss(z.float(), y), memory=memory)
            what = f"--model.objective {name} to leave examples as they are"
            with ones_own(objective, "--model.objective", "train a participant"), left_alone(what, x, y):
                with torch.no_grad():
                    tried.begin(copied.train(), here)
                torch.clear_autocast_cache()  # as in training
                check_loss(objective, found := tried.loss(copied.train(), x, y.long(), here))
                found.backward()
                optimizer.step()
                with torch.no_grad():
                    tried.end(copied.train(), here)
        check_remembered(objective, memory)
        _check_bound(copied, row, f"--model.objective {name}")
        _check_same_train(network, copied, f"--model.objective {name}")


def _check_same_train(network: nn.Module, trained: nn.Module, whose: str) -> None:
    """See that the same parameters train as in the beginning: these are what travels and what a checkpoint has.

    Raises:
        UserError: If one does not, or others do.
    """
    pairs = zip(network.named_parameters(), trained.parameters(), strict=True)
    if changed := [key for (key, p), other in pairs if p.requires_grad != other.requires_grad]:
        raise UserError(
            f"Expected {whose} to leave requires_grad of parameters as it is, but that of {changed[0]} changes; freeze "
            "it in --model.network, for everybody and all rounds, or put its values back at the end."
        )


def _drawn(loss: nn.Module, logits: Tensor, y: Tensor) -> Any:
    """What a loss makes of a batch, drawing the same each time."""
    with random_stream(0, logits.device):
        return loss(logits, y)


def check_training_mode(network: nn.Module, x: Tensor) -> None:
    """See that a network gives in training what it gives in evaluation: logits alone, and of the same shape.

    One that counts in plain attributes is warned of: no checkpoint keeps them.

    Args:
        network: It is left as it is.
        x: Inputs ``[B, ...]``, two at least.

    Raises:
        UserError: If not.
    """
    name = type(network).__name__
    try:
        with torch.no_grad(), left_alone(f"--model.network {name} to leave its inputs as they are in training", x):
            measured, copied = sharing_copy(network).eval()(x), sharing_copy(network).train()
            before, hidden = counts(copied), _hidden(copied)
            trained = copied(x)
            lost = isinstance(trained, Tensor) and _lost(network, copied, x)
    except (UserError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:  # whatever somebody's own code meets
        raise UserError(
            f"Expected --model.network {name} to take inputs of shape {list(x.shape)} in training, but it fails: "
            f"{reason(error)}; give a network for these inputs."
        ) from error
    if not isinstance(trained, Tensor) or trained.shape != measured.shape:
        got = list(trained.shape) if isinstance(trained, Tensor) else type(trained).__name__
        raise UserError(
            f"Expected --model.network {name} to give logits of shape {list(measured.shape)} in training, as in "
            f"evaluation, but got {got}; have it give these alone, without auxiliary outputs."
        )
    if changed := changes(before, counts(copied)):
        rank_zero_warn(
            f"{changed[0]} of --model.network {name} changes while it trains, and no checkpoint keeps it: if results "
            "depend on it, they depend on interruptions and on the number of ranks; have it be a buffer."
        )
    elif lost:
        what = next(iter(changes(hidden, _hidden(copied))), "something")
        rank_zero_warn(
            f"What --model.network {name} gives depends on {what}, which changes while it trains, and no checkpoint "
            "keeps it: results depend on interruptions and on the number of ranks; have it be a buffer that is kept."
        )


def _hidden(network: nn.Module) -> dict[str, str]:
    """What layers keep that no checkpoint does: attributes, and buffers that are not persistent."""
    found: dict[str, str] = {}
    for name, layer in network.named_modules():
        own = {key: value for key, value in vars(layer).items() if key not in EVERY_MODULES}
        own |= {key: layer._buffers[key] for key in layer._non_persistent_buffers_set}
        found |= {f"{name}.{key}".lstrip("."): fingerprint(value) for key, value in own.items()}
    return found


def _lost(network: nn.Module, used: nn.Module, x: Tensor) -> bool:
    """Whether a copy that has been used gives something else than one that is made of its checkpoint.

    Raises:
        UserError: If none can be made of it.
    """
    restored = sharing_copy(network).train()
    before, after = ({key: value.shape for key, value in one.state_dict().items()} for one in (network, used))
    if other := [key for key in {**before, **after} if before.get(key) != after.get(key)]:
        raise UserError(
            f"Expected --model.network {type(network).__name__} to keep parameters and buffers as its constructor "
            f"makes them, which a checkpoint is read back into, but {other[0]} comes, goes or changes its shape in "
            "training; register it there, with its size."
        )
    restored.load_state_dict(used.state_dict())
    found = []
    for one in (used, restored):
        with random_stream(0, x.device):
            found.append(one(x))
    return not close(*found)


def check_plain_steps(optimizer: Optimizer) -> None:
    """See that a step is the gradient times one learning rate: SCAFFOLD's corrections go by the mean gradient.

    Raises:
        UserError: If it is not.
    """
    kind, groups = type(optimizer), optimizer.param_groups
    extra = {
        " with momentum": (any(group.get("momentum") for group in groups), "give --model.optimizer.momentum 0"),
        " with several learning rates": (len({group["lr"] for group in groups}) > 1, "give it one"),
        " that maximises": (any(group.get("maximize") for group in groups), "give --model.optimizer.maximize false"),
    }
    found = {words: mend for words, (there, mend) in extra.items() if there}
    if kind is not SGD or found:
        mends = ["give torch.optim.SGD"] if kind is not SGD else [*found.values()]
        raise UserError(
            "Expected --model.optimizer SGD without momentum with --model.scaffold, which reads the mean gradient off "
            f"an update, but got {''.join([kind.__name__, *found])}; {' and '.join(mends)}, or leave --model.scaffold "
            "out."
        )


def warn_of_pulls(optimizer: Optimizer, pulls: Mapping[str, float]) -> None:
    """Tell of steps longer than twice the way that a proximal term alone draws back: each goes further off.

    Args:
        optimizer: A participant's.
        pulls: How strongly each option pulls, by its name.
    """
    for group in optimizer.param_groups if isinstance(optimizer, SGD) else ():
        for option, pull in pulls.items() if not group["momentum"] else ():
            if pull * group["lr"] >= 2:
                rank_zero_warn(
                    f"{option} {pull:g} times the learning rate, {group['lr']:g}, is not below 2: models may "
                    "diverge; lower one of them."
                )
