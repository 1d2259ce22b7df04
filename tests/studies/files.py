"""Files of small studies on the digits."""

from __future__ import annotations

import csv
from pathlib import Path

DIGITS = "--config digits.yaml --run.wandb false --run.figures false --standalone.enabled false"
SMALL = f"""\
name: small
base: {DIGITS} --trainer.max_epochs 2
axes:
  server:
    RFFL: ""
    FedAvg: --server FedAvg
  split: {{UNI: --data.split UNI, POW: --data.split POW}}
seeds: [1, 2]
exclude:
  - {{server: FedAvg, split: [POW]}}
"""


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def study(folder: Path, text: str = SMALL, name: str = "study.yaml") -> Path:
    """A study's file."""
    path = folder / name
    path.write_text(text)
    return path
