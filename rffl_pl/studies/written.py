"""Tables as text: Markdown, LaTeX or CSV."""

from __future__ import annotations

import csv
import io
import itertools
import re
import unicodedata
from collections.abc import Sequence

from rffl_pl.studies.study import TABLE_COLUMNS, TUNED
from rffl_pl.studies.tables import Table

FORMATS = ("md", "csv", "tex")
_MARKUP = re.compile(r"[\\|*<`]|(?<!\w)_|_(?!\w)")
"""What a label may have that Markdown takes for its own; within a word it leaves ``_`` alone."""
_ESCAPED = r"\\\g<0>"
_APART = ("gamma", "delta", "theta", "lambda", "xi", "pi", "sigma", "upsilon", "phi", "psi", "omega")
"""Greek letters whose capitals are no Latin ones, which LaTeX has no command for."""
_GREEK = {
    unicodedata.lookup(f"GREEK {size} LETTER {name.upper().replace('LAMBDA', 'LAMDA')}"): f"$\\{written}$"
    for name in (
        "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu",
        "xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega",
    )
    for size, written in (("SMALL", name), ("CAPITAL", name.title()))
    if size == "SMALL" or name in _APART
} | {"\N{MICRO SIGN}": r"$\mu$"}  # fmt: skip
"""Of Greek, which LaTeX has in formulas alone."""
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "±": r"$\pm$",
        "∞": r"$\infty$",
        "≠": r"$\neq$",
        "≤": r"$\leq$",
        "≥": r"$\geq$",
        "≈": r"$\approx$",
        "\N{MULTIPLICATION SIGN}": r"$\times$",
        "→": r"$\rightarrow$",
        "\N{MINUS SIGN}": "$-$",
        "|": "$|$",
        "<": "$<$",
        ">": "$>$",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
    }
    | {character: f"\\{character}" for character in "%_&#${}"}
    | _GREEK
)
"""What stands in LaTeX for signs that are its own, or that it has in formulas alone."""


def written(shown: Sequence[Table], axes: Sequence[str], how: str) -> str:
    """Tables as text.

    Args:
        shown: At least one.
        axes: Of rows and columns.
        how: One of `FORMATS`.
    """
    if how == "csv":
        return _csv(shown, axes)
    write = markdown if how == "md" else latex
    return "\n\n".join(write(table.caption(), _grid(table, axes[0])) for table in shown)


def _grid(table: Table, corner: str) -> list[list[str]]:
    lines = [[label, *(table.cell(label, column) for column in table.columns)] for label in table.rows]
    return [[corner, *table.columns], *lines]


def markdown(caption: str, grid: Sequence[Sequence[str]]) -> str:
    """A table in Markdown: the first line of the grid is its head, the first column is aligned left."""
    escaped = [[_MARKUP.sub(_ESCAPED, cell) for cell in line] for line in grid]
    text = [f"| {' | '.join(line)} |" for line in escaped]
    text.insert(1, "|---|" + "---:|" * (len(grid[0]) - 1))
    return "\n".join([f"Table: {_MARKUP.sub(_ESCAPED, caption)}", "", *text])


def latex(caption: str, grid: Sequence[Sequence[str]]) -> str:
    """A table in LaTeX that compiles without packages."""
    head, *body = (_line(line) for line in grid)
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{_escaped(caption)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(grid[0]) - 1)}}}",
            r"\hline",
            head,
            r"\hline",
            *body,
            r"\hline",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def _line(cells: Sequence[str]) -> str:
    """A row; behind the last one's end LaTeX would take ``[`` and ``*`` for options."""
    text = " & ".join(_escaped(cell) for cell in cells)
    return ("{}" if text.startswith(("[", "*")) else "") + text + r" \\"


def _escaped(text: str) -> str:
    return re.sub("-(?=-)", "-{}", text.translate(_LATEX))


def _csv(shown: Sequence[Table], axes: Sequence[str]) -> str:
    """A line per entry, unrounded, with the captions' numbers as columns."""
    text = io.StringIO()
    names, tuned = [*axes, *shown[0].rest], [TUNED] if any(one.tuned for one in shown) else []
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*names, *TABLE_COLUMNS, *tuned])
    for one in shown:
        for row, column in itertools.product(one.rows, one.columns):
            if entry := one.entries.get((row, column)):
                place = [row, column][: len(axes)]
                numbers = (entry.mean, entry.half, entry.seeds, entry.rounds, entry.effect)
                known = ["" if number is None else number for number in numbers]
                at = [one.tuned[row, column]] if tuned else []
                table.writerow([*place, *one.rest.values(), one.measure, *known, *at])
    return text.getvalue().rstrip("\n")
