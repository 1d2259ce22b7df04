"""Options that follow others: the parser takes them from a configuration, without effect."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from rffl_pl.cli.configurations import text_of
from rffl_pl.errors import UserError

FOLLOWS = {
    "federation.seed": "--seed_everything",
    "model.federation": "--federation",
    "data.federation": "--federation",
    "model.adversaries": "--adversaries",
    "reputation.server": "--server",
}
"""By option what it follows; of `Federation`, data and network have the same."""


_WHOLE = sorted({f"--{name.partition('.')[0]}" for name in FOLLOWS})
"""Groups and classes that may be given whole, as a file or as ``{...}``."""


def check_linked(words: Sequence[str]) -> None:
    """See that no option is given that follows another one, on the command line or in a configuration.

    Args:
        words: Of a command line, with configurations as files, each behind a ``--config``.

    Raises:
        UserError: If one is.
    """
    for before, word in itertools.pairwise(["", *words]):
        option, equals, value = word.partition("=")
        if before == "--config":
            _refuse(_options_in(word), f" in {word}")
        elif before in _WHOLE:
            _refuse(_options_in(word, f"{before[2:]}."), f" in {before} {word}")
        elif option.startswith("--"):
            _refuse((option.lstrip("-").rstrip("+"),))
        if equals and option in _WHOLE:
            _refuse(_options_in(value, f"{option[2:]}."), f" in {word}")


def _refuse(options: Sequence[str], where: str = "") -> None:
    for option in options:
        known = option.replace("init_args.", "")
        for name, first in FOLLOWS.items():
            if known == name or known.startswith(f"{name}."):
                typed = option if where else f"--{option}"
                raise UserError(
                    f"Expected {first} alone to say what {name} is, but got {typed}{where}, which has no effect; "
                    "leave that out."
                )


def _options_in(given: str, prefix: str = "") -> tuple[str, ...]:
    """The options that a file, or a text, gives, dotted; none of what is neither, as the parser says."""
    try:
        return _options_of(text_of(given), prefix)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError):
        return ()


@functools.cache
def _options_of(text: str, prefix: str) -> tuple[str, ...]:
    """The options that a text gives, dotted; cached, since many cells of a study have the same text."""
    return tuple(_dotted(yaml.safe_load(text), prefix))


def _dotted(content: Any, prefix: str) -> Iterator[str]:
    if not isinstance(content, dict):
        return
    for key, value in content.items():
        if value is not None:
            yield f"{prefix}{key}"
            yield from _dotted(value, f"{prefix}{key}.")
