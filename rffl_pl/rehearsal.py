"""What is seen to before a run begins: that trainer and data fit it, models have room, and one step can be trained."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Optimizer

from rffl_pl.cohort import channels_last
from rffl_pl.datamodules.reading import Batch, Evaluated, first_of
from rffl_pl.errors import UserError, ones_own, reason
from rffl_pl.federation import Federation
from rffl_pl.fingerprints import fingerprints, left_alone
from rffl_pl.functional.streams import random_stream
from rffl_pl.models.sizes import memory
from rffl_pl.objective import LocalRound, Objective, check_loss, check_remembered
from rffl_pl.schedule import OptimizerFactory, make_optimizer
from rffl_pl.stack import Loss, changes, counts


def check_trainer(trainer: Trainer, stage: str) -> None:
    """See to what the command line sees to, and who writes Python may forget.

    Args:
        trainer: Lightning's.
        stage: What it does, ``fit`` for instance.

    Raises:
        UserError: If it trains in another precision, nobody plays the rounds, or ranks would divide the examples.
    """
    check_precision(trainer.precision)
    callbacks = getattr(trainer, "callbacks")  # noqa: B009  # Lightning sets it where mypy cannot see
    if stage == "fit" and not any(getattr(callback, "plays", False) for callback in callbacks):
        raise UserError(
            "Expected a trainer with the callback that plays the rounds, but got "
            f"{', '.join(type(callback).__name__ for callback in callbacks) or 'none'}; give for instance "
            "Trainer(callbacks=[ReputationExchange(RFFL())])."
        )
    sampling = trainer._accelerator_connector.use_distributed_sampler
    if sampling and trainer.world_size > 1:
        raise UserError(
            "Expected Trainer(use_distributed_sampler=False) on several ranks, but got True: every rank evaluates "
            "its own participants on all examples."
        )


def check_precision(given: object) -> None:
    """See that what is trained is float32, as uploads are, whatever precision it is computed in.

    Raises:
        UserError: If it would be another, or float16, whose losses nobody scales.
    """
    if given not in (None, 32, "32", "32-true", "bf16", "bf16-mixed"):
        raise UserError(
            f"Expected --trainer.precision to be 32-true or bf16-mixed, but got {given}: uploads are float32."
        )


def check_same_federation(module: Federation, data: Federation) -> None:
    """See that module and data have the same members and seed.

    Raises:
        UserError: With what differs first.
    """
    for name in ("honest", "adversaries", "participation", "coalition", "seed"):
        there, here = getattr(module, name), getattr(data, name)
        if there != here:
            raise UserError(
                f"Expected the module and its data to be of one Federation, but {name} is {there} there and {here} "
                "here; give both the same."
            )


def first_batch(batches: Evaluated | None, which: str, owner: str) -> Batch:
    """The first batch of what is evaluated.

    Args:
        batches: What is evaluated.
        which: ``test`` or ``validation``, for the message.
        owner: The data module's class.

    Raises:
        UserError: If it cannot be read.
    """
    assert batches is not None
    try:
        x, y = first_of(batches)
        return x, y
    except UserError:
        raise
    except (StopIteration, TypeError, ValueError, RuntimeError) as error:
        raise UserError(
            f"Expected {owner} to give batches of pairs (x, y) of tensors, but its first {which} batch fails: "
            f"{type(error).__name__}: {' '.join(str(error).split())}."
        ) from error


def check_logits(network: nn.Module, x: Tensor, *, classes: int, owner: str, whose: str) -> Tensor:
    """See that a network makes class logits of a batch.

    Args:
        network: It is left as it is.
        x: Inputs ``[B, ...]``.
        classes: Number C of classes.
        owner: The data module's class.
        whose: Whose the inputs are, for messages.

    Returns:
        The logits ``[B, C]``.

    Raises:
        UserError: If not, or inputs are in double precision.
    """
    name, training = type(network).__name__, network.training
    if x.dtype == torch.float64:
        raise UserError(
            f"Expected {owner} to give inputs in single precision, {whose}, but got {x.dtype}; give x.float()."
        )
    try:
        with torch.inference_mode(), left_alone(f"--model.network {name} to leave its inputs as they are", x):
            logits: Any = network.eval()(x)
    except UserError:
        raise
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(
            f"Expected --model.network {name} to take inputs of shape {list(x.shape)}{_kind_of(x)}, {whose}, but it "
            f"fails: {' '.join(str(error).split())}; {_remedy(x)}."
        ) from error
    finally:
        network.train(training)
    if not isinstance(logits, Tensor):
        raise UserError(
            f"Expected --model.network {name} to give a tensor of logits, but got {type(logits).__name__}; have it "
            "give these alone, without auxiliary outputs."
        )
    if list(logits.shape) != [len(x), classes]:
        raise UserError(
            f"Expected --model.network {name} to give logits of shape {[len(x), classes]} for inputs of shape "
            f"{list(x.shape)}, {whose}, but got {list(logits.shape)}; give it {classes} outputs."
        )
    return logits.float()


def _kind_of(x: Tensor) -> str:
    """What is told of inputs beside their shape."""
    if x.dtype == torch.int64 and x.numel():
        return f" with numbers from {int(x.min())} to {int(x.max())}"
    return "" if x.dtype == torch.float32 else f" and of {x.dtype}"


def _remedy(x: Tensor) -> str:
    """What to do about inputs that a network does not take."""
    if x.dtype == torch.uint8:
        return "give x.float() / 255, or a network for these inputs"
    if x.dtype in (torch.float16, torch.bfloat16):
        return "give x.float(), or a network for these inputs"
    return "give a network for these inputs"


def check_step(
    factory: OptimizerFactory, network: nn.Module, x: Tensor, y: Tensor, loss: nn.Module | None = None
) -> None:
    """Train a copy of a network for one step, so that what cannot be trained is told before a run.

    Args:
        factory: Makes the optimizer.
        network: It is left as it is.
        x: Inputs ``[B, ...]``, two at least: batch normalisation has no variance of a single example.
        y: Classes ``[B]``.
        loss: By default cross-entropy.

    Raises:
        UserError: If it cannot.
    """
    copied = _copied(network).eval()
    optimizer = make_optimizer(factory, copied)
    if isinstance(optimizer, torch.optim.LBFGS):
        raise UserError("Expected --model.optimizer to step without a closure, but got LBFGS; take SGD or Adam.")
    try:
        logits = copied(x)
        if loss is None:
            found = cross_entropy(logits, y.long())
        else:  # on one more than classes: as many examples would hide a loss that mixes up the two
            rows = torch.arange(logits.shape[-1] + 1, device=logits.device) % len(logits)
            found = _tried(loss, logits[rows].float(), y[rows].long())
        found.backward()
        optimizer.step()
    except UserError:
        raise
    except (ValueError, TypeError, RuntimeError) as error:
        raise UserError(
            f"Expected --model.optimizer {type(optimizer).__name__} to train --model.network "
            f"{type(network).__name__}, but a first step fails: {reason(error)}."
        ) from error


def _tried(loss: nn.Module, logits: Tensor, y: Tensor) -> Tensor:
    """What a copy of a loss makes of a batch.

    Raises:
        UserError: If it is no loss: parameters of its own would be trained by nobody, and what it keeps from batch to
            batch would hang on who shares a process.
    """
    name, copied = type(loss).__name__, copy.deepcopy(loss)
    counted = counts(copied)
    if any(p.requires_grad for p in loss.parameters()):
        raise UserError(
            f"Expected --model.loss to have nothing to train, but {name} has parameters; have them be buffers, or "
            "part of --model.network."
        )
    try:
        with left_alone(f"--model.loss {name} to leave classes as they are", y):
            found, again = (_drawn(copied, logits, y) for _ in range(2))
    except UserError:
        raise
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(
            f"Expected --model.loss {name} to take class logits of shape {list(logits.shape)} and as many classes, but "
            f"it fails: {reason(error)}."
        ) from error
    if not isinstance(found, Tensor) or found.dim() or not found.requires_grad:
        got = f"shape {list(found.shape)}" if isinstance(found, Tensor) and found.dim() else type(found).__name__
        raise UserError(
            f"Expected --model.loss {name} to give one number for a batch, which logits can be trained by, but got "
            f"{got if got != 'Tensor' else 'one that hangs on no logit'}."
        )
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
        UserError: If it fails, gives more than a number or one that hangs on no parameter, keeps anything but tensors
            of a participant, or changes itself: results would hang on who shares a process.
    """
    name, memory = type(objective).__name__, dict[str, Tensor]()
    remedy = "have it keep tensors as .detach() gives them, and no locks or open files"
    with ones_own(objective, "--model.objective", "be copied", remedy):
        tried = copy.deepcopy(objective)
    copied, before = _copied(network), fingerprints(tried)
    optimizer = make_optimizer(factory, copied)
    for number in range(2):
        # Of logits in single precision, as in training.
        here = LocalRound(round=number, participant=0, criterion=lambda z, y: loss(z.float(), y), memory=memory)
        what = f"--model.objective {name} to leave examples as they are"
        with ones_own(objective, "--model.objective", "train a participant"), left_alone(what, x, y):
            with torch.no_grad():
                tried.begin(copied.train(), here)
            check_loss(objective, found := tried.loss(copied.train(), x, y.long(), here))
            found.backward()
            optimizer.step()
            with torch.no_grad():
                tried.end(copied.train(), here)
    check_remembered(objective, memory)
    after = fingerprints(tried)
    if changed := [key for key in after if before.get(key) != after[key]]:
        raise UserError(
            f"Expected --model.objective {name} to stay as it is made, since it serves all participants of a process, "
            f"but its {changed[0]} changes; keep what belongs to a participant in local.memory."
        )


def _drawn(loss: nn.Module, logits: Tensor, y: Tensor) -> Any:
    """What a loss makes of a batch, drawing the same each time."""
    with random_stream(0, logits.device):
        return loss(logits, y)


def takes_channels_last(network: nn.Module, x: Tensor) -> bool:
    """Whether a network takes images with channels last, as `view` of what a convolution makes of them does not.

    Args:
        network: It is left as it is.
        x: Inputs ``[B, ...]`` that it takes.
    """
    if x.dim() != 4:
        return True
    try:
        with torch.inference_mode():
            _copied(network).eval()(channels_last(x[:2]))
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError):
        return False
    return True


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
            measured, copied = _copied(network).eval()(x), _copied(network).train()
            before, trained = counts(copied), copied(x)
    except UserError:
        raise
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
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
            "hang on it, they hang on interruptions and on the number of ranks; have it be a buffer."
        )


def _copied(network: nn.Module) -> nn.Module:
    """A copy that shares what does not train."""
    return copy.deepcopy(network, {id(p): p for p in network.parameters() if not p.requires_grad})


def check_state(network: nn.Module) -> None:
    """See that a network's state is tensors alone, as checkpoints and exported weights keep it.

    Raises:
        UserError: If not.
    """
    for name, value in network.state_dict().items():
        if not isinstance(value, Tensor):
            raise UserError(
                f"Expected --model.network {type(network).__name__} to have tensors alone in its state_dict, but "
                f"{name} is of type {type(value).__name__}; have get_extra_state give a tensor, or leave it out."
            )


def check_plain_steps(optimizer: Optimizer) -> None:
    """See that a step is the gradient times one learning rate: SCAFFOLD's corrections go by the mean gradient.

    Raises:
        UserError: If it is not.
    """
    kind, groups = type(optimizer), optimizer.param_groups
    extra = {
        " with momentum": any(group.get("momentum") for group in groups),
        " with several learning rates": len({group["lr"] for group in groups}) > 1,
        " that maximises": any(group.get("maximize") for group in groups),
    }
    if kind is not SGD or any(extra.values()):
        got = "".join([kind.__name__, *(words for words, there in extra.items() if there)])
        raise UserError(
            "Expected --model.optimizer SGD without momentum with --model.scaffold, which reads the mean gradient off "
            f"an update, but got {got}; give torch.optim.SGD, or leave --model.scaffold out."
        )


def check_memory(dimension: int, participants: int, device: torch.device, beside: Mapping[str, int]) -> None:
    """See that the participants of a rank have room: each has weights and an update.

    Args:
        dimension: D.
        participants: How many of them a rank hosts.
        device: Where they live.
        beside: How many more such vectors each has, by the option that asks for them.

    Raises:
        UserError: If not.
    """
    needed, there = 4 * (2 + sum(beside.values())) * dimension * participants, memory(device)
    if needed > there:
        without = "".join(f"leave {option} out, " for option, more in beside.items() if more)
        raise UserError(
            f"Expected the models of {participants} participants to fit into the memory of a rank, but they need "
            f"{needed / 1e9:.0f} GB and there are {there / 1e9:.0f}; {without}lower --federation.participants, take a "
            "smaller --model.network, or start more ranks on other machines."
        )
