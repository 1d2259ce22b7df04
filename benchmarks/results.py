"""Writes every table of RESULTS.md anew, from the results that are kept: what stands between a command and its end.

python -m benchmarks.results
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from rffl_pl.studies import Study, results

RESULTS = Path(__file__).parent.parent / "RESULTS.md"
_BLOCK = re.compile(r"(<!-- rffl (.+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def commands(text: str) -> list[tuple[list[str], str]]:
    """The words of every command in a text, and what stands below it."""
    return [(shlex.split(block[2]), block[3].strip()) for block in _BLOCK.finditer(text)]


def renewed(text: str) -> str:
    """The text with the output of every command below it."""
    return _BLOCK.sub(lambda block: f"{block[1]}\n{_output(shlex.split(block[2]))}\n\n{block[4]}", text)


def _output(words: list[str]) -> str:
    from rffl_pl.cli.entry import main

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        main(words)
    return said.getvalue().strip()


@contextlib.contextmanager
def each_file_read_once() -> Iterator[None]:
    """Around several commands: files of results are large."""
    every, known = results.every, {}

    def once(study: Study, file: Path, columns: Sequence[str] = results.COLUMNS) -> list[results.Row]:
        if (file, *columns) not in known:
            known[file, *columns] = every(study, file, columns)
        return known[file, *columns]

    results.every = once
    try:
        yield
    finally:
        results.every = every


if __name__ == "__main__":
    with each_file_read_once():
        RESULTS.write_text(renewed(RESULTS.read_text()))
