"""Tables of patients for tests, and what is made of them."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.utils.data import TensorDataset

from rffl_pl.datamodules import TableFile
from rffl_pl.federation import Federation
from tests.datamodules.small import ready

Patient = Mapping[str, Any]
GAPS = ("", "NA", "?", "null")


def patients(count: int, seed: int = 1) -> list[Patient]:
    """Numbers of which some are missing, one that never changes, and texts, of which some are missing too."""
    draw = random.Random(seed)
    return [
        {
            "age": f"{draw.gauss(50, 15):.1f}",
            "pressure": draw.choice(GAPS) if draw.random() < 0.2 else f"{draw.gauss(120, 20):.2e}",
            "year": "2020",
            "sex": draw.choice(["f", "m", "x"]),
            "clinic": "" if draw.random() < 0.1 else draw.choice(["North, by the sea", "south", "007"]),
            "outcome": draw.choice(["ill", "well"]),
        }
        for _ in range(count)
    ]


def write(path: Path, rows: Sequence[Patient]) -> str:
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


def data_of(train: str, **options: Any) -> TableFile:
    given: dict[str, Any] = {"label": "outcome", "validation": 0, "watch": "test", "categories": "clinic"} | options
    data = TableFile(Federation(participants=2), train_file=train, **given)
    ready(data)
    return data


def inputs(data: TableFile, part: str = "train") -> Tensor:
    assert data.sources is not None
    dataset = getattr(data.sources, part)
    assert isinstance(dataset, TensorDataset)
    return dataset.tensors[0]


def numbered_rows(count: int, first: int = 0) -> list[Patient]:
    """Ages that say in which line of a file of 80 such rows a row stands, which is age + 2."""
    return [{"age": str(i), "outcome": str(i % 2)} for i in range(first, first + count)]
