"""The one exception that is a user's to mend."""

from __future__ import annotations


class UserError(ValueError):
    """A mistake in the configuration, the data or a file that a user handed in.

    The command line prints its message as one sentence, once on each node, and exits with code 2; every
    other exception is a bug of ours and keeps its traceback.
    """
