"""Standalone: everybody trains alone."""

from __future__ import annotations

from typing import ClassVar

from rffl_pl.errors import UserError
from rffl_pl.servers.base import Server, Task, Verdict
from rffl_pl.servers.evidence import Evidence


class Standalone(Server):
    r"""Nobody communicates, everybody trains alone: the reference that fairness is measured against.

    :math:`w_i \leftarrow w_i + \Delta_i`.

    Raises:
        UserError: At the start, if members are to miss rounds: there are none to be asked for.
    """

    communicates: ClassVar[bool] = False

    def start(self, task: Task) -> None:
        super().start(task)
        if task.participation < 1:
            raise UserError(
                f"Expected --federation.participation to be 1 under Standalone, but got {task.participation}; there "
                "nobody is asked for anything."
            )

    def rule(self, evidence: Evidence) -> Verdict:
        """Never asked: participants who do not communicate upload nothing."""
        raise RuntimeError("Standalone receives no uploads.")
