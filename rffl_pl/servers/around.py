"""Rules that surround another rule: they change what it is given, or what is made of its step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from torch import Tensor

from rffl_pl.errors import UserError, is_packaged
from rffl_pl.servers.base import Server, Task
from rffl_pl.servers.consensus import Consensus


class Around(Consensus):
    """Base of the rules around another rule, which has its own state, participants' side and decisions.

    Args:
        rule: The other rule.

    Raises:
        UserError: Before the first round, if the rule is none that can be surrounded, or its own options do not fit.

    Attributes:
        inner: The other rule.
    """

    by_coordinate: ClassVar[Sequence[str]] = ("model", "rule_vectors")

    def __init__(self, rule: Consensus) -> None:
        if not isinstance(rule, Consensus):
            given = type(rule).__name__ if isinstance(rule, Server) else repr(rule)
            raise UserError(
                f"Expected --server.rule to be an instance of Consensus, such as Median(), but got {given}; take "
                "another."
            )
        self.inner = rule
        super().__init__()
        self.whole = rule.whole
        self.gives_all = self.gives_all and rule.gives_all
        for depth, one in enumerate(surrounded(rule), 1):
            one.given_by = self.given_by + depth * ".rule"

    @property
    def answerable(self) -> Server:
        inner = self.inner.answerable
        return inner if is_packaged(type(self)) and not is_packaged(type(inner)) else self

    @property
    def round(self) -> int:
        """The round, counted from 0, which is the rule's too: its participants' side goes by it on every rank."""
        return self.inner.round

    @round.setter
    def round(self, number: int) -> None:
        self.inner.round = number

    def start(self, task: Task) -> None:
        super().start(task)
        self.check_rule()
        self._check_methods(task)
        with _named_as_typed(self.inner):
            self.inner.start(self.told(task))
        self.model, self.inner.model = self.inner.model, None  # if the rule has one, it is kept here

    def check_rule(self) -> None:
        """See that the rule can be surrounded.

        Raises:
            UserError: If not.
        """

    def _check_methods(self, task: Task) -> None:
        """See that the rule, which may be a user's own, overrides no method that the outer rule never calls.

        Raises:
            UserError: If it has.
        """
        kind, hands = type(self.inner), task.participation < 1 or self.inner.hands_models
        for method in ("rule", "model_for") if hands else ("rule",):
            if getattr(kind, method) is not getattr(Consensus, method):
                raise UserError(
                    f"Expected {self.inner.given_by} to decide by weigh, combine and stride, since the outer rule "
                    f"calls these and no {method}, but {kind.__name__} overrides {method}; remove that, or give "
                    f"--server {kind.__name__} alone."
                )

    def told(self, task: Task) -> Task:
        """What the rule is told of its task: by default the same."""
        return task

    def kept(self, update: Tensor) -> Tensor:
        return self.inner.kept(update)

    def outgoing(self, update: Tensor, memory: dict[str, Tensor], model: Tensor) -> Tensor:
        return self.inner.outgoing(update, memory, model)

    def pack(self, upload: Tensor) -> Tensor:
        return self.inner.pack(upload)

    def unpack(self, payload: Tensor, dimension: int) -> Tensor:
        return self.inner.unpack(payload, dimension)

    def combines(self, weights: Tensor) -> Tensor:
        return self.inner.combines(weights)

    def pool(self, statistics: Tensor, weights: Tensor) -> Tensor:
        return self.inner.pool(statistics, weights)

    def stride(self, combined: Tensor) -> Tensor:
        return self.inner.checked_stride(combined)

    def settings(self, prefix: str = "") -> dict[str, str]:
        return super().settings(prefix) | self.inner.settings(f"{prefix}.rule")

    def state_dict(self) -> dict[str, Any]:
        inner = self.inner.state_dict()
        vectors = {name: inner.pop(name) for name in [*inner] if name in (self.inner.by_coordinate or ())}
        return super().state_dict() | {"rule": inner, "rule_vectors": vectors, "rule_kind": type(self.inner).__name__}

    def check_state(self, state: dict[str, Any]) -> None:
        super().check_state({name: value for name, value in state.items() if name not in ("rule", "rule_vectors")})
        self.inner.check_state(state.get("rule", {}) | state.get("rule_vectors", {}))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave.

        Raises:
            UserError: If the rule was another.
        """
        super().load_state_dict(state)
        here = type(self.inner).__name__
        before = state.get("rule_kind", here)
        if before != here:
            raise UserError(
                f"Expected {self.inner.given_by} {before}, as in the checkpoint at --ckpt_path, but got {here}."
            )
        with _named_as_typed(self.inner):
            self.inner.load_state_dict(state["rule"] | state["rule_vectors"])
        self.round = state["round"]  # earlier releases kept another one for the rule


def surrounded(server: Server) -> list[Server]:
    """The server, and the rules that it is around, from the outermost on."""
    return [server, *(surrounded(server.inner) if isinstance(server, Around) else ())]


def innermost(server: Server) -> Server:
    """The rule that all others are around, or the server itself."""
    return surrounded(server)[-1]


@contextmanager
def _named_as_typed(rule: Server) -> Iterator[None]:
    """Context in which an inner rule's error names its options as typed: ``--server.rule.`` for ``--server.``."""
    try:
        yield
    except UserError as error:
        raise UserError(re.sub(r"--server\.(?!rule\b)", f"{rule.given_by}.", str(error))) from error
