"""W&B as the environment has it: where it is, the project, and whether anybody is logged in, without importing it."""

from __future__ import annotations

import netrc
import os
import tempfile
from urllib.parse import urlparse


def wandb_url() -> str:
    """The W&B server: the public one, or the user's own."""
    return os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai"


def wandb_project() -> str:
    """The project that runs go to where no option names one."""
    return os.environ.get("WANDB_PROJECT") or "rffl_pl"


def logged_in() -> bool:
    """Whether there is a key or a token."""
    if any(os.environ.get(name) for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE")):
        return True
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(urlparse(wandb_url()).hostname or "") is not None
    except (OSError, netrc.NetrcParseError):
        return False


def offline_without_login() -> None:
    """Have W&B run offline if nobody said otherwise and nobody is logged in; it would ask for a key, or fail."""
    if os.path.expanduser("~") == "~":  # a container's user with neither a name nor a home; W&B looks there
        os.environ["HOME"] = tempfile.gettempdir()
    if "WANDB_MODE" not in os.environ and not logged_in():
        os.environ["WANDB_MODE"] = "offline"
        os.environ.setdefault("WANDB_SILENT", "true")  # the report says where the files are
