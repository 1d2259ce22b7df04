"""Sends a dashboard to W&B."""

from __future__ import annotations

import wandb
from wandb.errors import AuthenticationError

from rffl_pl.dashboard.specification import Specification
from rffl_pl.errors import UserError

PATIENCE = 8
"""Seconds until a server that does not answer is given up."""


def send(dashboard: Specification) -> dict[str, str]:
    """Save the report and the workspace.

    Returns:
        Where each is.

    Raises:
        UserError: If W&B does not answer, or does not take them.
    """
    workspace, report = dashboard.workspace, dashboard.report
    try:
        wandb.Api(timeout=PATIENCE)  # it checks the login; saving would wait for a server longer
        report.save()  # the first: it makes a project that is not there
        workspace.save()
    except AuthenticationError as error:
        raise UserError(f"Expected W&B to answer and to know the login, but got: {_reason(error)}") from error
    except Exception as error:  # its client has several kinds for a refusal
        raise UserError(
            f"Expected --entity and --project to be yours in W&B, but with {workspace.entity} and {workspace.project} "
            f"got: {_reason(error)}"
        ) from error
    return {"workspace": workspace.url, "report": report.url}


def _reason(error: Exception) -> str:
    """What W&B says, in one line."""
    return " ".join(str(error).split())
