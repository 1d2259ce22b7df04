"""Federated averaging (McMahan et al. 2017, https://arxiv.org/abs/1602.05629)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from torch import Tensor

from rffl_pl.errors import UserError
from rffl_pl.servers.consensus import Consensus
from rffl_pl.servers.evidence import Evidence


class FedAvg(Consensus):
    r"""The mean of the uploads, each weighted by its sender's number of examples.

    :math:`w \leftarrow w + \sum_i p_i u_i` with :math:`p_i = n_i / \sum_j n_j` over this round's uploads.

    Args:
        variant: ``fedavg``; or ``released``, what the authors of RFFL ran under this name: everybody adds the aggregate
            on top of its own update, :math:`w_i \leftarrow w_i + u_i + \sum_j p_j u_j`.
    """

    by_coordinate: ClassVar[Sequence[str]] = ("model",)

    def __init__(self, *, variant: Literal["fedavg", "released"] = "fedavg") -> None:
        super().__init__()
        self.variant = variant

    @property
    def own_models(self) -> bool:  # type: ignore[override]  # of others it is an attribute that may be set
        return self.variant == "released"

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"variant": self.variant}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave.

        Raises:
            UserError: If it is of the other variant, under which models differ; or as under every such server.
        """
        super().load_state_dict(state)
        before = state.get("variant", self.variant)
        if before != self.variant:
            raise UserError(
                f"Expected --server.variant {before}, as in the checkpoint at --ckpt_path, but got {self.variant}."
            )

    def kept(self, update: Tensor) -> Tensor:
        return update if self.own_models else super().kept(update)

    def weigh(self, evidence: Evidence) -> Tensor:
        return evidence.examples / evidence.examples.sum()
