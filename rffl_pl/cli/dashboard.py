"""``rffl dashboard``: a workspace and a report of W&B that compare runs."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rffl_pl.cli.login import logged_in, wandb_project, wandb_url
from rffl_pl.cli.words import Words, expanded
from rffl_pl.errors import UserError


def parser() -> Words:
    """The command's options."""
    made = Words(
        "rffl dashboard",
        "Build a workspace and a report in Weights & Biases that compare all runs of a project: accuracy "
        "and fairness by server and attack, reputations, removals, bytes and seconds. Each call makes new ones.",
    )
    made.add_argument("--entity", required=True, help="user or team of W&B that the project belongs to")
    made.add_argument("--project", default=wandb_project(), help="as in --run.wandb_project: %(default)s")
    made.add_argument(
        "--out", metavar="FILE", type=expanded, help="write what would be sent as JSON; no network, no login"
    )
    return made


def answer(words: Sequence[str]) -> str:
    """Build the dashboard.

    Args:
        words: The words behind ``dashboard``.

    Returns:
        Where it is.

    Raises:
        UserError: If the words say nothing that can be done, or W&B does not take it.
    """
    given = parser().read(words)
    if given.out is None and not logged_in():
        raise UserError(
            f"Expected a login to W&B, but there is none for {wandb_url()}; give `wandb login`, or --out FILE to write "
            "the dashboard to a file."
        )
    os.environ.setdefault("WANDB_SILENT", "true")  # it is said below where things are
    try:
        from rffl_pl.dashboard.specification import specified
    except ImportError as error:
        raise UserError(f"Expected W&B's package for dashboards, but {error}; pip install wandb-workspaces.") from error
    dashboard = specified(given.entity, given.project)
    if given.out is not None:
        dashboard.write(given.out)
        return f"dashboard, not sent: {given.out}"
    from rffl_pl.dashboard.sending import send

    return "\n".join(f"{name}: {url}" for name, url in send(dashboard).items())
