"""Sends a dashboard to W&B."""

from __future__ import annotations

import wandb
from wandb.errors import AuthenticationError

from rffl_pl.dashboard.specification import Specification
from rffl_pl.errors import UserError

TRIES, PATIENCE, PAUSE = 2, 8, 4
"""How often a server is asked, how many seconds it has each time, and at most lie between two times."""


def send(dashboard: Specification) -> dict[str, str]:
    """Save the report and the workspace.

    Returns:
        Where each is.

    Raises:
        UserError: If W&B does not answer, or does not take them.
    """
    workspace, report = dashboard.workspace, dashboard.report
    try:
        # W&B's service process is to give up before its client does: one whose client went first, in the middle of
        # a request, sometimes never ends (wandb 0.31), and the command with it.
        wandb.setup(wandb.Settings(x_graphql_retry_max=TRIES - 1, x_graphql_timeout_seconds=PATIENCE))
        wandb.Api(timeout=TRIES * (PATIENCE + PAUSE))  # it checks the login
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
    """What W&B says, in one line; a second try's is the first one's again."""
    return " ".join(str(error).split("\nwhile retrying")[0].split())
