"""Writes into docs/withstood.md how much of its study has been measured.

python -m benchmarks.measured
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from rffl_pl.studies import Study, results
from rffl_pl.studies.settings import of_today

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "withstood.md"
KNOWING = {"alie", "min_max", "min_max_sign", "mimic", "backdoor"}
_BLOCK = re.compile(r"(<!-- measured -->\n\n)(.*?)(\n\n<!-- end -->)", re.DOTALL)


def shown(text: str) -> str:
    """The table that stands in a text."""
    found = _BLOCK.search(text)
    assert found is not None
    return found[2]


def table() -> str:
    """Runs by server and task, first under attacks on the reward, then under those that know every upload."""
    study = Study.read(ROOT / "configs" / "studies" / "takeover.yaml")
    rows, _ = of_today(study, results.read(study, ROOT / "results" / "takeover" / "results.csv.gz"))
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

    tasks = [*study.axes["task"]]
    lines = [
        ["server", *tasks],
        *([server, *(cell(server, task) for task in tasks)] for server in study.axes["server"]),
    ]
    text = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([text[0], "|---|" + "---:|" * len(tasks), *text[1:]])


if __name__ == "__main__":
    PAGE.write_text(_BLOCK.sub(lambda block: f"{block[1]}{table()}{block[3]}", PAGE.read_text()))
