"""The page of 100 runs with 10 participants each: how long it takes to write and a browser to open, and its size.

    OMP_NUM_THREADS=1 python -m benchmarks.compare

Four runs are trained on the digits, two servers under two attacks; 25 copies of each have other settings and seeds.
Needs Debian's chromium and the extra ``test``.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import yaml
from playwright.sync_api import Browser, sync_playwright

from rffl_pl.cli import main
from rffl_pl.comparison import chosen, vega, write
from tests.comparison.browser import CHROMIUM, FLAGS, opened

TRIES = 7
QUICK = ["--run.wandb", "false", "--run.figures", "false", "--trainer.enable_progress_bar", "false"]


def trained(root: Path) -> list[Path]:
    """Two servers under two attacks, eight honest participants and two adversaries, 40 rounds."""
    for server in ("rffl", "fedavg"):
        for attack in ("free_rider", "label_flip"):
            overlays = ["--config", f"servers/{server}.yaml", "--config", f"adversaries/{attack}.yaml"]
            size = ["--federation.participants", "8", "--federation.adversaries", "2", "--trainer.max_epochs", "40"]
            main(["fit", "--config", "digits.yaml", *overlays, *size, *QUICK, "--run.root", str(root)])
    return sorted(path.parent for path in root.glob("*/*/summary.json"))


def copies(runs: list[Path], root: Path) -> list[str]:
    """25 of each run: five learning rates with five seeds."""
    folders = []
    for number, run in enumerate(runs):
        config = yaml.safe_load((run / "config.yaml").read_text())
        for rate in (0.02, 0.05, 0.1, 0.2, 0.5):
            for seed in range(1, 6):
                folder = root / f"run_{number}_{rate}_{seed}" / run.name
                shutil.copytree(run, folder, ignore=shutil.ignore_patterns("checkpoints", "weights"))
                config["seed_everything"] = seed
                config["model"]["optimizer"]["init_args"]["lr"] = rate
                (folder / "config.yaml").write_text(yaml.safe_dump(config))
                folders.append(str(folder))
    return folders


def seconds(browser: Browser, file: Path) -> tuple[float, float]:
    """From the call to the first paint, and to the last chart."""
    with opened(browser, file) as page:
        ready = page.evaluate("window.readyAt")
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    return paint / 1000, ready / 1000


def measure(work: Path) -> None:
    folders = copies(trained(work / "trained"), work / "copies")
    page = work / "compare.html"
    for cache in ("empty", "kept"):
        vega.bundle.cache_clear()  # as in a process of its own
        start, cpu = time.perf_counter(), time.process_time()
        write(*chosen(folders), page)
        spent, of_cpu = time.perf_counter() - start, time.process_time() - cpu
        print(f"{len(folders)} runs, cache {cache}: written in {spent:.1f} s, {of_cpu:.1f} of the processor")
    print(f"{page.stat().st_size / 1e6:.2f} MB")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        paint, ready = zip(*(seconds(browser, page) for _ in range(TRIES)), strict=True)
        browser.close()
    for what, times in (("first text", paint), ("last chart", ready)):
        print(f"{what}: median {statistics.median(times):.2f} s of {TRIES}, longest {max(times):.2f} s")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        measure(Path(folder))
