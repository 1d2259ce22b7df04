"""The page in a real browser: its numbers, its filter and order, who can read it, and how it prints."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from rffl_pl.comparison import chosen, write
from rffl_pl.runs import RunFolder, Summary
from rffl_pl.studies.estimate import interval
from tests.comparison.browser import opened, rows
from tests.comparison.runs import GROUPS, copy

CHARTS = ("dots", "accuracy", "reputation", "alone", "removed", "cost")
NOTHING, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"
RESULTS = "#results-table table"
ATTACKS = ("FreeRider", "LabelFlip")


def summaries(folders: list[Path], server: str, attack: str) -> list[Summary]:
    return [
        RunFolder.open(folder).summary() for folder in folders if folder.parent.name.startswith(f"{server}-{attack}-")
    ]


def said(values: list[Any], factor: float = 100, digits: int = 1) -> str:
    """Mean and interval as a cell has them, by the statistics of a study's tables."""
    known = [value for value in values if value is not None]
    if not known:
        return NOTHING
    half = interval(known)
    few = f" (n={len(known)})" if len(known) < len(values) else ""
    more = "" if half is None else f" ± {factor * half:.{digits}f}"
    return f"{factor * fmean(known):.{digits}f}".replace("-", MINUS) + more + few


def open_all(page: Page) -> None:
    """Every table of a chart."""
    for details in page.locator("details.more").all():
        details.locator("summary").click()
    expect(page.locator("details.more table")).to_have_count(len(CHARTS) + 2)


def test_the_results_are_those_of_the_summaries(browser: Browser, page_file: Path, folders: list[Path]) -> None:
    """A group that mixes other runs, or an interval that is not Student's t over its seeds, would show here."""
    with opened(browser, page_file) as page:
        shown = {(row["server"], row["adversaries.0"]): row for row in rows(page, RESULTS)}
        assert shown.keys() == GROUPS.keys()
        for (server, attack), row in shown.items():
            runs = summaries(folders, server, attack)
            assert row["Seeds"] == str(len(runs)) == str(len(GROUPS[server, attack]))
            assert row["Accuracy, %"] == said([run.mean for run in runs])
            own = [run.measured["multiclass_calibration_error"][: run.honest] for run in runs]
            means = [fmean(value for value in values if value is not None) for values in own]
            assert row["Multiclass calibration error"] == said(means, 1, 3)
            assert row["Highest, %"] == said([run.maximum for run in runs])
            assert row["Fairness"] == said([run.fairness for run in runs], 1, 3)
            assert row["Gain, points"].removeprefix("+") == said([run.gain for run in runs])
        detection = {row["Group"]: row for row in rows(page, f"{RESULTS} >> nth=1")}
        row = detection["1 · RFFL · FreeRider"]
        assert row["Adversaries removed, %"] == said([run.recall for run in summaries(folders, "RFFL", "FreeRider")])
        taken = [run.taken for run in summaries(folders, "RFFL", "FreeRider")]
        assert row["Taken by adversaries, points"].removeprefix("+") == said(taken)
        flipped = [run.attack_success for run in summaries(folders, "RFFL", "LabelFlip")]
        assert detection["2 · RFFL · LabelFlip"]["Attack success, %"] == said(flipped)
        assert "; 4 rounds" in page.locator("#results-table .caption").first.inner_text()


def test_only_what_differs_is_a_setting(browser: Browser, page_file: Path) -> None:
    """Options that all runs share are no column and no filter."""
    with opened(browser, page_file) as page:
        assert page.locator("#differ dt").all_inner_texts() == ["--server", "--adversaries.0", "--seed_everything"]
        assert page.locator("#differ dd").all_inner_texts() == ["FedAvg, RFFL", "FreeRider, LabelFlip", "1, 2"]
        assert page.locator(".filter > summary").all_inner_texts() == ["server: all", "adversaries.0: all", "seed: all"]


@pytest.mark.slow
def test_the_filter_narrows_tables_and_charts(browser: Browser, page_file: Path, folders: list[Path]) -> None:
    """A box that is unticked takes its runs out of every number, and Show all brings them back."""
    with opened(browser, page_file) as page:
        page.get_by_text("server: all").click()
        page.get_by_role("checkbox", name="FedAvg").uncheck()
        assert page.locator("#status").inner_text() == "4 of 5 runs shown, in 2 groups."
        assert {row["server"] for row in rows(page, RESULTS)} == {"RFFL"}
        expect(page.locator("[data-chart=accuracy] .role-mark.mark-text text")).to_have_count(2)  # ends of curves
        assert page.locator("[data-key=groups] li").all_inner_texts() == [
            "1 · RFFL · FreeRider",
            "2 · RFFL · LabelFlip",
        ]
        page.keyboard.press("Escape")
        page.get_by_text("seed: all").click()
        page.get_by_role("checkbox", name="2").uncheck()
        alone = [run.mean for run in summaries(folders, "RFFL", "FreeRider")][:1]
        assert rows(page, RESULTS)[0]["Accuracy, %"] == said(alone)
        page.get_by_role("checkbox", name="1").uncheck()
        assert "0 of 5 runs" in page.locator("#status").inner_text()
        expect(page.locator("[data-chart=accuracy]")).to_have_text("No run is left; tick more in the filter.")
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Show all").click()
        expect(page.locator("#status")).to_have_text("5 of 5 runs shown, in 3 groups.")
        expect(page.locator("[data-chart=accuracy] svg")).to_be_visible()


@pytest.mark.slow
def test_the_order_is_any_setting_or_measure(browser: Browser, page_file: Path) -> None:
    """By its control and, with keys alone, by a heading, which then says so to a screen reader."""
    with opened(browser, page_file) as page:
        page.get_by_label("Sort by").select_option(label="server")
        assert [row["server"] for row in rows(page, RESULTS)] == ["FedAvg", "RFFL", "RFFL"]
        assert page.locator("[data-key=groups] li").first.inner_text().startswith("3 · FedAvg")
        heading = page.locator(RESULTS).first.get_by_role("button", name="Accuracy, %")
        heading.focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Enter")
        accuracies = [float(row["Accuracy, %"].split()[0]) for row in rows(page, RESULTS)]
        assert accuracies == sorted(accuracies, reverse=True)
        assert accuracies != sorted(accuracies)
        expect(heading.locator("..")).to_have_attribute("aria-sort", "descending")
        expect(heading).to_be_focused()


@pytest.mark.slow
def test_the_worst_case_is_the_lowest_of_the_attacks(browser: Browser, page_file: Path, folders: list[Path]) -> None:
    """Of attack success it is the highest."""
    with opened(browser, page_file) as page:
        rffl, fedavg = rows(page, "#worst table")
        assert fedavg["LabelFlip"] == NOTHING
        assert "of 1 of 2 attacks" in fedavg["worst case"]
        assert "of 2 attacks" in rffl["worst case"]
        means = {attack: fmean(run.mean or 0 for run in summaries(folders, "RFFL", attack)) for attack in ATTACKS}
        cells = {name: float(text.split()[0]) for name, text in rffl.items() if name != "Server"}
        expected = {attack: pytest.approx(100 * mean, abs=0.051) for attack, mean in means.items()}
        every = [summaries(folders, "RFFL", attack) for attack in ATTACKS]
        of_seeds = [min(run.mean or 0 for run in runs) for runs in zip(*every, strict=True)]
        assert cells == expected | {"worst case": pytest.approx(100 * fmean(of_seeds), abs=0.051)}
        page.get_by_label("Measure", exact=True).select_option(label="Gain of adversaries")
        gains = [max(run.adversary_gain or 0 for run in runs) for runs in zip(*every, strict=True)]
        worst = float(rows(page, "#worst table")[0]["worst case"].split()[0].replace(MINUS, "-"))
        assert worst == pytest.approx(100 * fmean(gains), abs=0.051)


def test_the_worst_case_of_groups_that_lack_a_seed(browser: Browser, folders: list[Path], tmp_path: Path) -> None:
    """Of a seed that the worst group has not another group's value was taken, and the worst case was better than it."""
    for number, (folder, epochs, mean) in enumerate([(folders[0], 3, 0.9), (folders[1], 3, 0.9), (folders[0], 9, 0.1)]):
        one = copy(folder, tmp_path / str(number) / folder.name, model__local_epochs=epochs)
        (one / "summary.json").write_text(json.dumps(json.loads((one / "summary.json").read_text()) | {"mean": mean}))
    write(*chosen([f"{tmp_path}/*/*"]), tmp_path / "page.html")
    with opened(browser, tmp_path / "page.html") as page:
        (rffl,) = rows(page, "#worst table")
        assert (rffl["FreeRider"].split()[0], rffl["worst case"].split()[0]) == ("10.0", "10.0")


@pytest.mark.slow
def test_a_share_of_nothing_is_the_worst(browser: Browser, folders: list[Path], tmp_path: Path) -> None:
    """Adversaries that took something where the smallest honest participant gained nothing: no dash, and no best."""
    for folder in folders:
        one = copy(folder, tmp_path / folder.parent.name / folder.name)
        took = {"taken_most": 0.2, "smallest_gain": -0.1, "taken_share": None}
        mine = took if "FedAvg" in folder.parent.name else {"taken_most": 0.1, "smallest_gain": 0.2, "taken_share": 0.5}
        (one / "summary.json").write_text(json.dumps(json.loads((one / "summary.json").read_text()) | mine))
    write(*chosen([f"{tmp_path}/*/*"]), tmp_path / "page.html")
    with opened(browser, tmp_path / "page.html") as page:
        page.get_by_label("Measure", exact=True).select_option(label="Adversaries' share")
        fedavg, rffl = rows(page, "#worst table")
        assert (fedavg["FreeRider"].split()[0], fedavg["worst case"].split()[0]) == ("∞", "∞")
        assert rffl["worst case"].startswith("50.0")
        page.get_by_label("Sort by").select_option(label="Adversaries' share")
        assert [row["Adversaries' share, %"].split()[0] for row in rows(page, f"{RESULTS} >> nth=1")] == [
            "50.0",
            "50.0",
            "∞",
        ]


@pytest.mark.slow
def test_every_chart_has_marks_and_a_table(browser: Browser, page_file: Path, folders: list[Path]) -> None:
    """The tables have a row for all that is drawn; that of removals agrees with the summaries."""
    with opened(browser, page_file) as page:
        open_all(page)
        for name in CHARTS:
            assert page.locator(f"[data-chart={name}] svg path").count() > 3, name
            assert rows(page, f"[data-table={name}] table"), name
        removed = {
            (row["Run"].split("/")[0], row["Participant"], row["Removed in round"])
            for row in rows(page, "[data-table=removed] table")
        }
        assert removed == {
            (folder.parent.name, str(participant), str(number))
            for folder in folders
            for participant, number in enumerate(RunFolder.open(folder).summary().removed_in_round)
            if number is not None
        }
        assert removed
        last = RunFolder.open(folders[0]).rounds()[-1].measures["reputation"][0]
        other = RunFolder.open(folders[1]).rounds()[-1].measures["reputation"][0]
        row = rows(page, "[data-table=reputation] table")[0]
        assert (row["Group"], row["Role"], row["Participant"]) == ("1 · RFFL · FreeRider", "honest", "0")
        assert float(row["Round 4"]) == pytest.approx((last + other) / 2, abs=1e-4)


def test_an_interval_beyond_a_hundred_percent_is_drawn_whole(
    browser: Browser, folders: list[Path], tmp_path: Path
) -> None:
    """Adversaries may take more than an honest participant gains, or lose: cut, a line would not reach its own dot."""
    shares = [1.2, 1.8]
    for number, (folder, share) in enumerate(zip(folders, shares, strict=False)):
        one = copy(folder, tmp_path / str(number) / folder.name)
        summary = json.loads((one / "summary.json").read_text())
        (one / "summary.json").write_text(json.dumps(summary | {"taken_share": share}))
    write(*chosen([f"{tmp_path}/*"]), tmp_path / "page.html")
    with opened(browser, tmp_path / "page.html") as page:
        assert rows(page, f"{RESULTS} >> nth=1")[0]["Adversaries' share, %"] == said(shares)
        page.get_by_label("One measure, all groups").select_option(label="Adversaries' share")
        expect(page.locator("[data-chart=dots]")).to_contain_text("Adversaries' share, %")
        marks = page.locator("[data-chart=dots] .role-mark")
        line, dot = (marks.locator(mark).last.bounding_box() for mark in ("line", "path"))
        assert line
        assert dot
        assert line["x"] + line["width"] / 2 == pytest.approx(dot["x"] + dot["width"] / 2, abs=1)
        assert line["width"] > 5 * dot["width"]
        page.get_by_label("Measure", exact=True).select_option(label="Adversaries' share")
        assert "Adversaries' share, %" in " ".join(page.locator("#worst .caption").inner_text().split())
        assert " ".join(rows(page, "#worst table")[0]["worst case"].split()).startswith(said(shares))


def test_runs_of_several_versions(browser: Browser, folders: list[Path], tmp_path: Path) -> None:
    """They are told: a group whose runs have the same options but the seed may differ in that."""
    copies = [copy(folder, tmp_path / str(number) / folder.name) for number, folder in enumerate(folders[:2])]
    start = json.loads((copies[0] / "starts.jsonl").read_text())
    (copies[0] / "starts.jsonl").write_text(json.dumps(start | {"torch": "2.6.0"}) + "\n")
    write(*chosen([f"{tmp_path}/*/*"]), tmp_path / "page.html")
    with opened(browser, tmp_path / "page.html") as page:
        told = page.locator("#about").inner_text()
        assert f"Not all were computed with the same torch: {min('2.6.0', start['torch'])}" in told
        assert "the same rffl_pl" not in told


def test_accuracies_have_rounds_of_their_own(browser: Browser, folders: list[Path], tmp_path: Path) -> None:
    """Where only some rounds measure them, values of the others' places would be those of other rounds."""
    one = copy(folders[0], tmp_path / "a" / folders[0].name)
    with (one / "metrics.csv").open(newline="") as file:
        kept = list(csv.DictReader(file))
    for row in kept[::2]:
        row.update({name: "" for name in row if name.startswith("accuracy/")})
    with (one / "metrics.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, kept[0].keys())
        writer.writeheader()
        writer.writerows(kept)
    write(*chosen([str(one)]), tmp_path / "page.html")
    with opened(browser, tmp_path / "page.html") as page:
        open_all(page)
        (accuracies,) = rows(page, "[data-table=accuracy] table")
        expected = {f"Round {row['round']}": said([float(row["accuracy/mean"])]) for row in kept[1::2]}
        assert {name: value for name, value in accuracies.items() if name != "Group"} == expected
        assert len(expected) == 2
        first = rows(page, "[data-table=reputation] table")[0]
        for row in kept:
            value = float(row["reputation/participant_0"])
            assert float(first[f"Round {row['round']}"]) == pytest.approx(value, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_everybody_can_read_it(browser: Browser, page_file: Path, width: int, scheme: str) -> None:
    """Nothing that axe finds fault with, contrasts among it, with all tables open; no scrolling sideways."""
    with opened(browser, page_file, width=width, scheme=scheme) as page:
        open_all(page)
        page.get_by_text("seed: all").click()
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        assert page.evaluate("document.documentElement.scrollWidth") == width


def test_axe_would_find_a_fault(browser: Browser, page_file: Path) -> None:
    """The test above can fail."""
    with opened(browser, page_file) as page:
        page.add_style_tag(content=".lead { color: #bbb !important }")
        found = Axe().run(page, context="header", options={"runOnly": ["color-contrast"]})
        assert found.violations_count == 1


def test_charts_do_not_speak_by_colour_alone(browser: Browser, page_file: Path) -> None:
    """Curves of groups and of roles have dashes of their own, points have shapes."""
    with opened(browser, page_file) as page:
        lines = page.locator("[data-chart=accuracy] .mark-line path").all()
        assert len({line.get_attribute("stroke-dasharray") for line in lines}) == len(lines) == 3
        ends = page.locator("[data-chart=accuracy] .role-mark.mark-text text").all_text_contents()
        assert set(ends) >= {"1", "2", "3"}
        roles = page.locator("[data-chart=reputation] .mark-line path").all()
        assert len({line.get_attribute("stroke-dasharray") for line in roles}) == 2


@pytest.mark.slow
def test_it_prints_whole_and_without_controls(browser: Browser, page_file: Path) -> None:
    """Every table is opened for the printer, in light colours, and closed again."""
    with opened(browser, page_file, scheme="dark") as page:
        page.emulate_media(media="print", color_scheme="dark")
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        assert page.locator("details.more[open] table").count() == len(CHARTS) + 2
        expect(page.locator(".filters")).to_be_hidden()
        expect(page.get_by_role("button", name="Show all")).to_be_hidden()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert len(page.pdf(format="A4")) > 20_000
        page.evaluate("window.dispatchEvent(new Event('afterprint'))")
        assert page.locator("details.more[open]").count() == 0


def test_runs_without_a_setting_alone(browser: Browser, folders: list[Path], tmp_path: Path) -> None:
    """A filter that leaves them says so, and not null."""
    copy(folders[0], tmp_path / "a" / folders[0].name)
    copy(folders[0], tmp_path / "b" / folders[0].name, adversaries=[])
    write(*chosen([str(tmp_path)]), tmp_path / "page.html")
    with opened(browser, tmp_path / "page.html") as page:
        page.get_by_text("adversaries.0: all").click()
        page.get_by_role("checkbox", name="FreeRider").uncheck()
        assert page.locator(".filter > summary").all_inner_texts() == ["adversaries.0: not set"]


def test_numbers_that_are_rounded_to_zero(browser: Browser, folders: list[Path], tmp_path: Path) -> None:
    """They have no minus, as in the tables of studies."""
    for name, gain in (("a", -0.0004), ("b", -0.0006), ("c", 0.002)):
        one = copy(folders[0], tmp_path / name / folders[0].name, server__init_args__gamma=len(name) + gain)
        summary = json.loads((one / "summary.json").read_text())
        (one / "summary.json").write_text(json.dumps(summary | {"gain": gain}))
    write(*chosen([str(tmp_path)]), tmp_path / "page.html")
    with opened(browser, tmp_path / "page.html") as page:
        assert [row["Gain, points"] for row in rows(page, RESULTS)] == ["0.0", f"{MINUS}0.1", "+0.2"]


def test_groups_that_have_no_dot(browser: Browser, folders: list[Path], tmp_path: Path) -> None:
    """No axis has their mean, which is infinite: below the chart stands which they are."""
    took: dict[str, Any] = {"taken_most": 0.2, "smallest_gain": -0.1, "taken_share": None}
    for number, (folder, more) in enumerate(zip(folders[:3], ({"taken_share": 0.5}, took, took), strict=True)):
        one = copy(folder, tmp_path / str(number) / folder.name, server__init_args__gamma=number)
        (one / "summary.json").write_text(json.dumps(json.loads((one / "summary.json").read_text()) | more))
    write(*chosen([str(tmp_path)]), tmp_path / "page.html")
    with opened(browser, tmp_path / "page.html") as page:
        choice, note = page.get_by_label("One measure, all groups"), page.locator("#dots-note")
        choice.select_option(label="Adversaries' share")
        expect(note).to_contain_text("Without a dot, since their mean is ∞: group 2, 3.")
        choice.select_option(label="Accuracy")
        expect(note).not_to_contain_text("∞")


def test_a_name_is_no_markup(browser: Browser, folders: list[Path], tmp_path: Path) -> None:
    """Whatever stands in a configuration is shown as it is."""
    evil = "</script><img src=x onerror=alert(1)>"
    one = copy(folders[0], tmp_path / "a" / folders[0].name, data__init_args__split=evil)
    write(*chosen([str(one), str(folders[0])]), tmp_path / "page.html")
    with opened(browser, tmp_path / "page.html") as page:
        assert evil in page.locator("#differ dd").all_inner_texts()[0]
        assert page.locator("img").count() == 0


def test_one_run_and_few_facts(browser: Browser, folders: list[Path], tmp_path: Path) -> None:
    """A single run without configuration and rounds, as Python leaves it, has a page that says what is not known."""
    bare = tmp_path / "bare" / "run"
    bare.mkdir(parents=True)
    shutil.copy(folders[0] / "summary.json", bare)
    write(*chosen([str(bare)]), tmp_path / "page.html")
    with opened(browser, tmp_path / "page.html") as page:
        assert page.locator("h1").inner_text() == "One run"
        assert page.locator("[data-chart=accuracy]").inner_text() == "These runs measured no accuracy on the way."
        assert "from" in page.locator("#differ").inner_text()


@pytest.mark.slow
def test_it_says_what_accuracies_are_watched_on(browser: Browser, folders: list[Path], tmp_path: Path) -> None:
    """As the run kept it, or as one of an earlier release was asked for."""
    test = copy(folders[0], tmp_path / "a" / folders[0].name, data__init_args__watch="test")
    old = json.loads((test / "summary.json").read_text())
    del old["watched"]
    (test / "summary.json").write_text(json.dumps(old))
    for runs, said in (
        ([folders[0]], "on held-out training examples."),
        ([test], "on the test set."),
        ([folders[0], test], "on held-out training examples or, by run, the test set."),
    ):
        write(*chosen([str(run) for run in runs]), tmp_path / "page.html")
        with opened(browser, tmp_path / "page.html") as page:
            assert said in page.locator("#accuracy-note").inner_text()


@pytest.mark.slow
def test_a_hundred_runs(browser: Browser, folders: list[Path], tmp_path: Path) -> None:
    """They fit in 1.5 MB, and every setting that differs filters."""
    named = [
        copy(
            folders[seed % 2], tmp_path / f"{rate}-{seed}" / folders[0].name,
            seed_everything=seed, model__optimizer__init_args__lr=rate,
        )
        for rate in (0.01, 0.02, 0.05, 0.1)
        for seed in range(25)
    ]  # fmt: skip
    write(*chosen([str(folder) for folder in named]), tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size < 1.5e6
    with opened(browser, tmp_path / "page.html") as page:
        page.get_by_text("model.optimizer.lr: all").click()
        page.get_by_role("checkbox", name="0.05").uncheck()
        assert page.locator("#status").inner_text() == "75 of 100 runs shown, in 3 groups."
