"""What the sizes of a network may be."""

from __future__ import annotations

from rffl_pl.errors import check_number


def check_sizes(**sizes: int) -> None:
    """See that every size of a network is one.

    Args:
        sizes: By the name of the constructor's argument.

    Raises:
        UserError: If one is below 1.
    """
    for name, size in sizes.items():
        check_number(f"--model.network.{name}", size, 1)
