"""The examples in docstrings of the pure rooms give what they say."""

from __future__ import annotations

import doctest
import importlib

import pytest

from tests.conftest import ROOT

MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for room in ("functional", "metrics")
    for path in sorted((ROOT / "rffl_pl" / room).glob("[!_]*.py"))
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    """Each is run as a reader would run it."""
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples() -> None:
    """The test above has something to run."""
    assert sum(doctest.testmod(importlib.import_module(name)).attempted for name in MODULES) > 5
