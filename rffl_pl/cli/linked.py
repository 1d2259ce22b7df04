"""Options that follow others: the parser takes them from a configuration, and nothing goes by them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from rffl_pl.errors import UserError

FOLLOWS = {
    "federation.seed": "--seed_everything",
    "model.federation": "--federation",
    "data.federation": "--federation",
    "model.adversaries": "--adversaries",
    "reputation.server": "--server",
}
"""By option what it follows; of `Federation`, data and network have the same."""


def check_linked(words: Sequence[str]) -> None:
    """See that no option is given that follows another one, on the command line or in a configuration.

    Args:
        words: Of a command line, with configurations as files.

    Raises:
        UserError: If one is.
    """
    for before, word in itertools.pairwise(["", *words]):
        option, equals, value = word.partition("=")
        if before in ("-c", "--config"):
            _refuse(_options_in(word), f" in {word}")
        elif option == "--config" and equals:
            _refuse(_options_in(value), f" in {value}")
        elif option.startswith("--"):
            _refuse((option.lstrip("-").rstrip("+"),))


def _refuse(options: Sequence[str], where: str = "") -> None:
    for option in options:
        known = option.replace("init_args.", "")
        for name, first in FOLLOWS.items():
            if known == name or known.startswith(f"{name}."):
                typed = option if where else f"--{option}"
                raise UserError(
                    f"Expected {first} alone to say what {name} is, but got {typed}{where}, which nothing goes by; "
                    "leave that out."
                )


def _options_in(file: str) -> tuple[str, ...]:
    """The options that a configuration gives, dotted; none of what is no configuration, as the parser says."""
    try:
        return _options_of(Path(file).read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError):
        return ()


@functools.cache
def _options_of(text: str) -> tuple[str, ...]:
    """Likewise of a text, which many cells of a study have in common."""
    content = yaml.safe_load(text)
    return tuple(_dotted(content.get("fit", content) if isinstance(content, dict) else {}))


def _dotted(content: Any, prefix: str = "") -> Iterator[str]:
    if not isinstance(content, dict):
        return
    for key, value in content.items():
        if value is not None:
            yield f"{prefix}{key}"
            yield from _dotted(value, f"{prefix}{key}.")
