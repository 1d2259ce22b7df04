"""Writes into docs/withstood.md the worst of its study, and how much of it has been measured.

python -m benchmarks.measured
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

from rffl_pl.studies import Study, results
from rffl_pl.studies.results import Row
from rffl_pl.studies.settings import of_today

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "withstood.md"
KNOWING = {"alie", "min_max", "min_max_sign", "mimic", "backdoor"}
_BLOCK = re.compile(r"(<!-- (worst|measured) -->\n\n)(.*?)(\n\n<!-- end -->)", re.DOTALL)


def shown(text: str) -> dict[str, str]:
    """The tables that stand in a text, by name."""
    return {block[2]: block[3] for block in _BLOCK.finditer(text)}


def tables() -> dict[str, str]:
    """The tables as results have them, by name: servers down, tasks across."""
    study = Study.read(ROOT / "configs" / "studies" / "takeover.yaml")
    rows, _ = of_today(study, results.read(study, ROOT / "results" / "takeover" / "results.csv.gz"))
    return {"worst": _table(study, _worst(rows)), "measured": _table(study, _counts(study, rows))}


def _worst(rows: list[Row]) -> Callable[[str, str], str]:
    """Honest removed, points that an adversary takes, and % of the honest: under any attack on the reward and seed."""
    found = defaultdict[tuple[str, str, str], list[float]](list)
    for row in rows:
        if row["attack"] not in KNOWING | {"nobody"}:
            found[row["server"], row["task"], row["measure"]].append(float(row["value"]))

    def cell(server: str, task: str) -> str:
        removed, taken, left = (
            found[server, task, measure] for measure in ("honest_removed", "taken_most", "accuracy_mean")
        )
        numbers = [max(removed), 100 * max(taken), 100 * min(left)] if left else []
        return "\u202f/\u202f".join(f"{number:.0f}" for number in numbers) or "none"  # in one line of a narrow column

    return cell


def _counts(study: Study, rows: list[Row]) -> Callable[[str, str], str]:
    """Runs, first under attacks on the reward, then under those that know every upload."""
    known = {(row["task"], row["attack"], row["server"], int(row["seed"])) for row in rows}
    asked, done = Counter[tuple[str, str, bool]](), Counter[tuple[str, str, bool]]()
    for place in study.places():
        task, attack, server = place["task"], place["attack"], place["server"]
        group = (server, task, attack in KNOWING)
        asked[group] += len(study.seeds)
        done[group] += sum((task, attack, server, seed) in known for seed in study.seeds)

    def cell(server: str, task: str) -> str:
        pairs = [(done[server, task, knowing], asked[server, task, knowing]) for knowing in (False, True)]
        if all(a == 0 for a, _ in pairs):
            return "none"
        return "all" if all(a == b for a, b in pairs) else ", ".join(f"{a} of {b}" for a, b in pairs)

    return cell


def _table(study: Study, cell: Callable[[str, str], str]) -> str:
    tasks = [*study.axes["task"]]
    lines = [
        ["server", *tasks],
        *([server, *(cell(server, task) for task in tasks)] for server in study.axes["server"]),
    ]
    text = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([text[0], "|---|" + "---:|" * len(tasks), *text[1:]])


if __name__ == "__main__":
    found = tables()
    PAGE.write_text(_BLOCK.sub(lambda block: f"{block[1]}{found[block[2]]}{block[4]}", PAGE.read_text()))
