"""Federated optimizers (Reddi et al. 2021, https://arxiv.org/abs/2003.00295)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from rffl_pl.errors import UserError, reason
from rffl_pl.servers.around import Around
from rffl_pl.servers.base import Task
from rffl_pl.servers.consensus import Consensus
from rffl_pl.servers.evidence import Evidence
from rffl_pl.servers.fedavg import FedAvg


class FedOpt(Around):
    r"""The step of another rule is a gradient, by which an optimizer of the server's takes the step.

    .. math::
        g_t = -R(u_1, \dots, u_m), \qquad w \leftarrow w + \mathrm{Optimizer}(g_t)

    with R the other rule. With `FedAvg` inside, SGD with momentum is FedAvgM (Hsu et al. 2019,
    https://arxiv.org/abs/1909.06335), Adam is FedAdam, Adagrad is FedAdagrad; SGD with learning rate 1 and no momentum
    is R itself. A round without any upload that can be used is none for the optimizer either.

    Args:
        rule: R: `FedAvg` (by default), any other `Consensus` of the package that leaves the step to the server, also
            one that mixes before another, or one of your own.
        optimizer: One of torch's, or your own, by its class and options; it must treat every entry alike and apart from
            all others. By default SGD with learning rate 1 and momentum 0.9.

    Raises:
        UserError: If the optimizer does not take its options, needs more than a gradient, or entries meet in it; before
            the first round, if the rule has steps of its own, or its own options do not fit.

    torch's Adam corrects the bias of its averages, which Algorithm 2 of Reddi et al. does not, and in it and Adagrad
    squares begin at 0 (Adagrad's at ``initial_accumulator_value``), where theirs begin at :math:`\tau^2` or above.
    ``eps`` is their :math:`\tau`, for which they take 1e-3; torch's default of 1e-8 has entries that hardly move take
    steps as long as all others.
    """

    by_coordinate: ClassVar[Sequence[str]] = (*Around.by_coordinate, "optimizer_vectors")

    steps_by_updates = False

    def __init__(
        self, *, rule: Consensus | None = None, optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None
    ) -> None:
        super().__init__(FedAvg() if rule is None else rule)
        self._made = _with_momentum if optimizer is None else optimizer
        self._options = _tried(self._made)
        self._place = nn.Parameter(torch.empty(0))
        self._optimizer = self._made([self._place])

    def start(self, task: Task) -> None:
        super().start(task)
        self._place = nn.Parameter(torch.zeros_like(task.initial))
        self._optimizer = self._made([self._place])

    def check_rule(self) -> None:
        inner = self.inner
        while isinstance(inner, Around) and not isinstance(inner, FedOpt):
            inner = inner.inner
        if inner.keeps_model or inner.hears_losses or isinstance(inner, FedOpt) or inner.own_models:
            released = isinstance(inner, FedAvg)
            got = f"{inner.given_by}.variant released" if released else type(inner).__name__
            why = ", which needs the model" if inner.keeps_model else ""
            why += ", under which everybody's model is its own" if inner.own_models else ""
            raise UserError(
                f"Expected {self.inner.given_by} to be one that leaves the length of the step to an optimizer, such as "
                f"FedAvg or Median, but got {got}{why}; {'leave that out' if released else 'take another'}."
            )

    def weigh(self, evidence: Evidence) -> Tensor:
        return self.inner.decided(evidence)

    def combine(self, block: Tensor, weights: Tensor) -> Tensor:
        return self.inner.checked_combine(block, weights)

    def measures(self, evidence: Evidence, weights: Tensor) -> dict[str, Tensor]:
        return self.inner.checked_measures(evidence, weights)

    @torch.no_grad()
    def stride(self, combined: Tensor) -> Tensor:
        self._move_to(combined)
        self._place.grad = -self.inner.checked_stride(combined)
        self._optimizer.step()
        step = self._place.detach().clone()
        self._place.zero_()  # the optimizer only sees how far it goes; the model is kept elsewhere
        self._place.grad = None
        return step

    def state_dict(self) -> dict[str, Any]:
        vectors = {name: value for name, value in self._remembered.items() if _is_vector(value, self._place)}
        numbers = {name: value for name, value in self._remembered.items() if name not in vectors}
        return super().state_dict() | {
            "optimizer": _copied(numbers, "cpu"),
            "optimizer_vectors": _copied(vectors, "cpu"),
            "optimizer_kind": self._options["optimizer"],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave.

        Raises:
            UserError: If the rule or the optimizer was another.
        """
        super().load_state_dict(state)
        before, here = state["optimizer_kind"], self._options["optimizer"]
        if before != here:
            raise UserError(
                f"Expected --server.optimizer {before}, as in the checkpoint at --ckpt_path, but got {here}."
            )
        remembered = {**state["optimizer"], **state["optimizer_vectors"]}
        if remembered:  # torch's optimizers begin where there is nothing
            self._optimizer.state[self._place] = _copied(remembered, self._place.device)

    def settings(self, prefix: str = "") -> dict[str, str]:
        options = {f"{prefix}.{name}": value for name, value in self._options.items()}
        return super().settings(prefix) | options

    @property
    def _remembered(self) -> dict[str, Any]:
        """What the optimizer keeps: of every entry, and numbers."""
        remembered: dict[str, Any] = self._optimizer.state.get(self._place, {})
        return remembered

    def _move_to(self, there: Tensor) -> None:
        """Have the optimizer work where the uploads are; what it keeps goes along."""
        if self._place.device == there.device:
            return
        (group,) = self._optimizer.param_groups
        everything = group.get("fused") or group.get("capturable")  # else numbers stay on the CPU, as torch has it
        for name, value in self._remembered.items():
            if isinstance(value, Tensor) and (everything or _is_vector(value, self._place)):
                self._remembered[name] = value.to(there.device)
        self._place.data = self._place.data.to(there.device)


def _with_momentum(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return SGD(parameters, lr=1.0, momentum=0.9)


def _is_vector(value: Any, place: Tensor) -> bool:
    return isinstance(value, Tensor) and value.dim() == 1 and value.shape == place.shape


def _copied(remembered: dict[str, Any], device: torch.device | str) -> dict[str, Any]:
    """Without what is None; of numbers that are tensors too: optimizers change them in place."""
    return {
        name: value.to(device, copy=True) if isinstance(value, Tensor) else value
        for name, value in remembered.items()
        if value is not None
    }


def _tried(made: Callable[[Iterable[nn.Parameter]], Optimizer]) -> dict[str, str]:
    """See that an optimizer can take the server's steps.

    Returns:
        Its class and options, by name.

    Raises:
        UserError: If it cannot.
    """
    gradients = torch.tensor([[0.5, -2.0, 1e-3], [-1.0, 0.25, 3.0]])
    try:
        made([nn.Parameter(torch.zeros(1))])
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"Expected --server.optimizer to take a vector and its options, but {reason(error)}; mend these, or take "
            "SGD or Adam."
        ) from error
    try:
        together = _walked(made, gradients)
        apart = torch.cat([_walked(made, gradients[:, i : i + 1]) for i in range(3)])
        optimizer = made([nn.Parameter(torch.zeros(1))])
    except UserError:
        raise
    except Exception as error:  # whatever torch, or a user's own, has against its options
        raise UserError(
            f"Expected --server.optimizer to step by a gradient of a vector, but {reason(error)}; take SGD or Adam."
        ) from error
    name, (group, *_) = type(optimizer).__name__, optimizer.param_groups
    if not torch.allclose(together, apart):
        raise UserError(
            f"Expected --server.optimizer to treat every entry apart from all others, but got {name}; take SGD or Adam."
        )
    if group.get("weight_decay"):
        raise UserError(
            f"Expected --server.optimizer.weight_decay to be 0, since the server's steps are not the model, but got "
            f"{group['weight_decay']:g}; give --server.optimizer.weight_decay 0, or --model.optimizer.weight_decay."
        )
    if group.get("maximize"):
        raise UserError(
            "Expected --server.optimizer.maximize to be false, since the server's steps go where the updates go, but "
            "got true; leave it out."
        )
    plain = {key: _printed(value) for key, value in group.items() if isinstance(value, int | float | tuple)}
    return {"optimizer": name} | {f"optimizer.{key}": value for key, value in plain.items()}


def _printed(option: float | tuple[float, ...]) -> str:
    """An optimizer's option, the same for 1 and 1.0."""
    return str(option) if isinstance(option, bool | tuple) else f"{option:g}"


def _walked(made: Callable[[Iterable[nn.Parameter]], Optimizer], gradients: Tensor) -> Tensor:
    """Where an optimizer comes to from 0 by gradients ``[steps, d]``, ``[d]``."""
    place = nn.Parameter(torch.zeros(gradients.shape[1]))
    optimizer = made([place])
    for gradient in gradients:
        place.grad = gradient.clone()
        optimizer.step()
    return place.detach()
