"""What a network makes of examples, before a run begins: a batch of every kind goes through it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from lightning import LightningModule
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from rffl_pl.datamodules import FederatedDataModule
from rffl_pl.datamodules.reading import Batch, Evaluated, first_of
from rffl_pl.errors import UserError, in_a_line, ones_own, reason
from rffl_pl.functional.fingerprints import checksum, close, left_alone
from rffl_pl.functional.streams import drawn_so_far, random_stream
from rffl_pl.models import Perceptron
from rffl_pl.runs.settings import EVERY_MODULES
from rffl_pl.training.layout import channels_last
from rffl_pl.training.parameters import modes_kept, running_statistics, sharing_copy

_MORE = 5
"""Words of padding that are put behind sentences, to see whether they count."""


@dataclass(frozen=True)
class Tried:
    """What a network made of the batches that it was tried on.

    Attributes:
        x: Inputs ``[B, ...]`` of the first batch of test examples.
        y: Their classes ``[B]``.
        logits: What it makes of them, ``[B, C]``.
        draws: Whether it draws at random in evaluation.
        channels_last: Whether it takes images with channels last.
    """

    x: Tensor
    y: Tensor
    logits: Tensor
    draws: bool
    channels_last: bool


def try_network(network: nn.Module, data: FederatedDataModule, hosted: Sequence[int], device: torch.device) -> Tried:
    """Give a network batches of every kind, so that a misfit is told before training.

    Args:
        network: It is left as it is.
        data: Where they are from.
        hosted: Whose own examples are among them.
        device: Where what it may draw at random comes from.

    Raises:
        UserError: If it does not make class logits of one of them.
    """
    first: tuple[Tensor, Tensor, Tensor] | None = None
    owner, draws, last = type(data).__name__, False, True  # until images are met that it does not take so
    with random_stream(0, device):  # a dataset may draw at random; the run's own stream stays
        for whose, (x, y) in _batches_of_every_kind(data, hosted):
            before = drawn_so_far(device)
            logits = check_logits(network, x, classes=data.num_classes, owner=owner, whose=whose)
            draws |= drawn_so_far(device) != before
            last &= takes_channels_last(network, x)
            if first is None:
                first = (x, y.long(), logits)
                if data.padded:
                    warn_of_padding(network, x, logits)
    assert first is not None  # there always is a test set
    return Tried(*first, draws, last)


def _batches_of_every_kind(data: FederatedDataModule, hosted: Sequence[int]) -> Iterator[tuple[str, Batch]]:
    """Whose they are, and a batch: everybody's, the hosted participants' own, and the most unusual ones."""
    owner = type(data).__name__
    yield "the test set's", first_batch(data.test_dataloader(), "test", owner)
    if data.sources is not None and data.sources.validation is not None:
        yield "the validation set's", first_batch(data.held_out_dataloader(), "validation", owner)
    if not data.apart("training"):
        x, y = data.example(hosted[0])
        yield "the training set's", (torch.cat([x, x]), torch.cat([y, y]))  # of one some layers have no variance
    for i in hosted:
        for which, batch in data.own_examples(i).items():
            yield f"the {which} set's of participant {i}", batch
    for which, batch in data.extremes():
        yield f"the {which} set's", batch


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
            f"{in_a_line(error)}."
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
        UserError: If not, if inputs are in double precision, or if the network changes itself in evaluation.
    """
    name = type(network).__name__
    if x.dtype == torch.float64:
        raise UserError(
            f"Expected {owner} to give inputs in single precision, {whose}, but got {x.dtype}; give x.float()."
        )
    try:
        inputs_stay = left_alone(f"--model.network {name} to leave its inputs as they are", x)
        with modes_kept(network), _measured_alone(network), torch.inference_mode(), inputs_stay:
            logits: Any = network.eval()(x)
    except UserError:
        raise
    except Exception as error:  # whatever somebody's own code meets
        raise UserError(
            f"Expected --model.network {name} to take inputs of shape {list(x.shape)}{_kind_of(x)}, {whose}, but it "
            f"fails: {reason(error)}; {_remedy(network, x)}."
        ) from error
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


@contextmanager
def _measured_alone(network: nn.Module) -> Iterator[None]:
    """Where a network is evaluated, which may be done at any time and of equal models with one: all stay as they are.

    Raises:
        UserError: If a parameter changes, or a buffer that is no count.
    """
    named = [*network.named_parameters(), *network.named_buffers()]
    held = {name: tensor for name, tensor in named if tensor.is_floating_point()}
    before = {name: _state_of(tensor) for name, tensor in held.items()}
    yield
    if changed := [name for name, tensor in held.items() if _state_of(tensor) != before[name]]:
        raise UserError(
            f"Expected --model.network {type(network).__name__} to stay as it is in evaluation, but its {changed[0]} "
            "changes, and with it what is trained; change it only while self.training, and leave out max_norm of "
            "embeddings, which scales them down in evaluation too."
        )


def _state_of(tensor: Tensor) -> tuple[int, int]:
    """Numbers that change whenever a tensor is written to, even with the values that it had."""
    return tensor._version, checksum(tensor.detach())


def warn_of_modes(network: nn.Module) -> None:
    """Tell of frozen layers that are in evaluation mode among others that are not: while participants train, none is.

    What trains, or a network as a whole, may only have been read from a file, which leaves it in evaluation mode.

    Args:
        network: It is left as it is.
    """
    # Lightning tells of any such layer, of others too, which train in training mode all the same.
    warnings.filterwarnings("ignore", message=".*in eval mode at the start of training.*")
    held = {name for name, layer in network.named_modules() if not layer.training and _is_kept(layer)}
    if not network.training or not held:
        return
    moved = [name for name, layer in sharing_copy(network).train().named_modules() if name in held and layer.training]
    if moved:
        rank_zero_warn(
            f"{moved[0]} of --model.network {type(network).__name__} is in evaluation mode, but while participants "
            "train all layers are in training mode: dropout drops there, and running statistics move though nothing "
            f"trains; to keep it so have train(mode) of the network call self.{moved[0]}.eval() after super().train("
            "mode), and return self."
        )


def _is_kept(layer: nn.Module) -> bool:
    """Whether a layer is frozen and does something else in evaluation mode: it drops, or keeps running statistics."""
    parameters = [*layer.parameters()]
    drops = any(isinstance(part, _DropoutNd) and part.p > 0 for part in layer.modules())
    differs = drops or len(running_statistics(layer)) > 0
    return len(parameters) > 0 and not any(p.requires_grad for p in parameters) and differs


def warn_of_probabilities(network: nn.Module, logits: Tensor, loss: nn.Module | None) -> None:
    """Tell of a network that ends in a softmax, of which cross-entropy takes another: it trains, but hardly learns.

    And of one that does not end in its logarithm, which the negative log-likelihood takes: that falls without end.

    Args:
        network: It is named.
        logits: What it makes of some inputs, ``[B, C]``.
        loss: None is cross-entropy.
    """
    sums = logits.logsumexp(1)
    if isinstance(loss, nn.NLLLoss) and not torch.allclose(sums, torch.zeros_like(sums), atol=1e-3):
        rank_zero_warn(
            f"--model.network {type(network).__name__} gives no logarithms of probabilities, which --model.loss "
            "NLLLoss takes; give CrossEntropyLoss, or end the network in LogSoftmax."
        )
    if not isinstance(loss, nn.CrossEntropyLoss | None):
        return
    sums = logits.sum(1)
    if logits.shape[1] > 1 and (logits >= 0).all() and torch.allclose(sums, torch.ones_like(sums), atol=1e-3):
        rank_zero_warn(
            f"--model.network {type(network).__name__} gives rows that add up to 1, as probabilities do; cross-entropy "
            "takes logits, so leave its last softmax out."
        )


def warn_of_padding(network: nn.Module, x: Tensor, logits: Tensor) -> None:
    """Tell of a network that reads what fills sentences up to the longest of a batch: measures depend on the others.

    Args:
        network: It is left as it is.
        x: Sentences ``[B, L]``.
        logits: What it makes of them, ``[B, C]``.
    """
    try:
        with modes_kept(network), torch.inference_mode():
            longer = network.eval()(torch.nn.functional.pad(x, (0, _MORE)))
    except Exception:
        return  # of so many words it takes none
    if not close(longer.float(), logits):
        rank_zero_warn(
            f"--model.network {type(network).__name__} gives a sentence other logits with more padding, zeros, behind "
            "it, so that accuracies and predictions depend on which others are in its batch, and on "
            "--data.eval_batch_size; leave padding out of what it computes."
        )


def _kind_of(x: Tensor) -> str:
    """What is told of inputs beside their shape."""
    if x.dtype == torch.int64 and x.numel():
        return f" with numbers from {int(x.min())} to {int(x.max())}"
    return "" if x.dtype == torch.float32 else f" and of {x.dtype}"


def _remedy(network: nn.Module, x: Tensor) -> str:
    """What to do about inputs that a network does not take."""
    if type(network) is Perceptron and x.dtype == torch.float32:
        return f"give --model.network.inputs {x[0].numel()}"
    if x.dtype == torch.uint8:
        return "give x.float() / 255, or a network for these inputs"
    if x.dtype in (torch.float16, torch.bfloat16):
        return "give x.float(), or a network for these inputs"
    return "give a network for these inputs"


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
            sharing_copy(network).eval()(channels_last(x[:2]))
    except Exception:
        return False
    return True


def check_state(network: nn.Module) -> None:
    """See that a network can be copied and kept: its state is tensors that lie apart, none has hooks, modes switch.

    Raises:
        UserError: If not.
    """
    name = type(network).__name__
    remedy = (
        "have it keep no locks, open files or computed tensors, and take parametrizations.weight_norm for weight_norm"
    )
    with ones_own(network, "--model.network", "be copied", remedy):
        sharing_copy(network)
    if any(isinstance(layer, torch.jit.ScriptModule) for layer in network.modules()):
        raise UserError(
            f"Expected --model.network to be written in Python, but {name} is compiled by torch.jit, whose parameters "
            "nobody can place; give the module that was compiled."
        )
    with modes_kept(network):
        if network.train(network.training) is not network:
            raise UserError(
                f"Expected train(mode) of --model.network {name} to return the network, as torch's does, but it does "
                "not; end it by return self."
            )
    for key, p in network.named_parameters():
        if p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None):
            raise UserError(
                f"Expected --model.network {name} to have no hooks on its parameters, which copies of it, one for each "
                f"participant, do not have, but {key} has one; do it in its forward, or in --model.optimizer."
            )
    _check_dense(network)
    _check_apart(network)
    for key, value in network.state_dict().items():
        if not isinstance(value, Tensor):
            raise UserError(
                f"Expected --model.network {name} to have tensors alone in its state_dict, but "
                f"{key} is of type {type(value).__name__}; have get_extra_state give a tensor, or leave it out."
            )


def _check_dense(network: nn.Module) -> None:
    """See that every entry of what a network keeps has a place of its own: copies are filled from a checkpoint.

    Raises:
        UserError: If not.
    """
    for key, tensor in [*network.named_parameters(), *network.named_buffers()]:
        sparse = tensor.layout != torch.strided
        if sparse or any(size > 1 and step == 0 for size, step in zip(tensor.shape, tensor.stride(), strict=True)):
            how = "sparse" if sparse else "expanded"
            mend = "its indices and values, and make it of them in forward" if sparse else "it as .contiguous() gives"
            raise UserError(
                f"Expected --model.network {type(network).__name__} to have dense parameters and buffers, but {key} is "
                f"{how}; register {mend}."
            )


def _check_apart(network: nn.Module) -> None:
    """See that what trains shares no memory but as one parameter: copies, one for each participant, would not.

    Raises:
        UserError: If another parameter or a buffer lies where one does that trains.
    """
    trains = {p.data_ptr(): key for key, p in network.named_parameters() if p.requires_grad and p.numel()}
    for key, tensor in [*network.named_parameters(), *network.named_buffers()]:
        first = trains.get(tensor.data_ptr(), key) if tensor.numel() and tensor.data_ptr() else key
        if first != key:
            raise UserError(
                f"Expected --model.network {type(network).__name__} to tie weights by sharing the Parameter object, "
                f"but {key} only shares memory with {first}, which ends with the first copy; write b.weight = a.weight "
                "for b.weight.data = a.weight.data, and compute in forward what a buffer would follow."
            )


def warn_of_unregistered(network: nn.Module) -> None:
    """Tell of layers that neither train nor are kept, since they lie in a list, a tuple or a dictionary.

    Args:
        network: It is left as it is.
    """
    registered = {*network.modules()}
    for name, layer in network.named_modules():
        for key, value in vars(layer).items():
            held = [*value.values()] if isinstance(value, dict) else value if isinstance(value, list | tuple) else []
            layers = [one for one in held if isinstance(one, nn.Module) and one not in registered]
            if key not in EVERY_MODULES and any(p.requires_grad for one in layers for p in one.parameters()):
                rank_zero_warn(
                    f"Layers in {f'{name}.{key}'.lstrip('.')} of --model.network {type(network).__name__} neither "
                    "train nor are kept with it, since torch does not look into a list, tuple or dictionary; take an "
                    "nn.ModuleList or nn.ModuleDict, or freeze them."
                )


def warn_of_own_training(network: nn.Module) -> None:
    """Tell of a network that comes with a training of its own, of which nothing is used but its forward.

    Args:
        network: It is left as it is.
    """
    if isinstance(network, LightningModule):
        rank_zero_warn(
            f"--model.network {type(network).__name__} is a LightningModule, of which participants train the forward "
            "alone: its training_step, configure_optimizers and hooks are not called; give --model.optimizer, "
            "--model.loss or --model.objective what they do."
        )
