"""Classes under other names: what pytest's monkeypatch takes back of an object it deletes, which classes refuse."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def named(kind: type, name: str | None = None, module: str | None = None) -> Iterator[None]:
    """A class with another name, or of another module: in a module of tests it would be a second one of that name."""
    before = kind.__name__, kind.__qualname__, kind.__module__
    kind.__name__ = kind.__qualname__ = name or kind.__name__
    kind.__module__ = module or kind.__module__
    try:
        yield
    finally:
        kind.__name__, kind.__qualname__, kind.__module__ = before
