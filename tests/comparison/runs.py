"""Real runs on the digits, as small as can be: two servers, two attacks, two seeds, not all with all."""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import yaml

from rffl_pl.cli import main
from tests.conftest import only_run

GROUPS = {("RFFL", "FreeRider"): (1, 2), ("RFFL", "LabelFlip"): (1, 2), ("FedAvg", "FreeRider"): (1,)}
"""The seeds of every server under every attack."""
FILES = {"RFFL": "rffl", "FedAvg": "fedavg", "FreeRider": "free_rider", "LabelFlip": "label_flip"}
SMALL = (
    "--trainer.max_epochs", "4", "--data.examples_per_participant", "20",
    "--data.adversary_examples", "8", "--run.checkpoint_every", "4", "--run.wandb", "false",
    "--run.figures", "false", "--trainer.enable_progress_bar", "false",
    "--model.measures+=torchmetrics.classification.MulticlassCalibrationError", "--model.measures.num_classes", "10",
)  # fmt: skip


def train(root: Path, *words: str, name: str) -> Path:
    """The folder of a run of the digits with these words; nothing of it leaks."""
    before = dict(os.environ)
    places = ("--run.root", str(root), "--run.name", name, "--standalone.cache_dir", str(root / "cache"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            main(["fit", "--config", "digits.yaml", *SMALL, *words, *places])
    finally:
        os.environ.clear()
        os.environ.update(before)
    return only_run(root, name)


def train_all(root: Path) -> list[Path]:
    """Every run; RFFL removes after the second round."""
    folders = []
    for (server, attack), seeds in GROUPS.items():
        overlays = ("--config", f"servers/{FILES[server]}.yaml", "--config", f"adversaries/{FILES[attack]}.yaml")
        removal = ("--server.removal_from", "2", "--server.gamma", "0.1") if server == "RFFL" else ()
        for seed in seeds:
            more = (*removal, "--federation.adversaries", "2", "--seed_everything", str(seed))
            folders.append(train(root, *overlays, *more, name=f"{server}-{attack}-{seed}"))
    return folders


def copy(run: Path, target: Path, **changed: Any) -> Path:
    """The run's folder again, without its weights, with other options: ``federation__participation=0.5``."""
    shutil.copytree(run, target, ignore=shutil.ignore_patterns("checkpoints", "weights"))
    config = yaml.safe_load((run / "config.yaml").read_text())
    for option, value in changed.items():
        *groups, name = option.split("__")
        place = config
        for group in groups:
            place = place[group]
        place[name] = value
    (target / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    return target
