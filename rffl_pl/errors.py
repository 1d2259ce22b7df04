"""The one exception that is a user's to mend, and what may have been meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake in the configuration, the data or a file that a user handed in.

    The command line prints its message as one sentence, once on each node, and exits with code 2; every
    other exception is a bug of ours and keeps its traceback.
    """


def nearest(name: str, known: Iterable[str], likeness: float = 0.55) -> str:
    """``; did you mean A or B?`` if something known is near to a name, whatever its case; else nothing."""
    by_lower = {entry.lower(): entry for entry in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=likeness)
    return f"; did you mean {' or '.join(by_lower[entry] for entry in near)}?" if near else ""
