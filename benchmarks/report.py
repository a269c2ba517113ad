"""The page of a large job: bytes, time to write it, and time to first paint in Chromium.

Run:
    python -m benchmarks.report
"""

from __future__ import annotations

import runpy
import shutil
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.inputs import Inputs, main
from benchmarks.table import Row, bound, is_installed, mb, seconds
from tracekit.reports.render import write_report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.results import Result

TITLE = "Report of 1,024 ranks by 20 steps"
SKIPPED = "skipped: pip install selenium; apt-get install chromium chromium-driver"
N_RANKS, N_STEPS = 1024, 20
N_PAINTS = 5
MOST_MB = 6
MOST_S = 2
_PAINT = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def rows(inputs: Inputs) -> Iterator[Row]:
    """Size, CPU of writing, first paint."""
    path = inputs.folder / "report.html"
    result = _large_result()
    started_s = time.process_time()
    write_report(result, path)
    yield Row("write the page: CPU", seconds(time.process_time() - started_s))
    size_mb = path.stat().st_size / 1e6
    yield Row("size", mb(size_mb * 1e6), target=bound(size_mb, "MB", most=MOST_MB))
    what = f"first contentful paint, median of {N_PAINTS}"
    if not is_installed("selenium") or not _browser() or not shutil.which("chromedriver"):
        yield Row(what, "", SKIPPED)
        return
    paint_s = _first_paint_s(path, inputs.folder / "profile")
    yield Row(what, seconds(paint_s), target=bound(paint_s, "s", most=MOST_S))


def _large_result() -> Result:
    """The result that the tests of the page draw, with its findings and one late rank."""
    made = runpy.run_path(str(Path(__file__).parents[1] / "tests" / "reports" / "conftest.py"))
    late = 700
    steps = tuple(range(N_STEPS))
    run = made["run_facts"](N_RANKS, steps, steps[1:-1], layout={"tp": 8, "pp": 4, "dp": 32})
    result: Result = made["result_of"](
        run,
        made["straggler_rows"](N_RANKS, N_STEPS, late=late),
        (*made["other_findings"](), made["straggler_finding"](f"rank {late}", late, N_RANKS)),
        headline=made["HEADLINE"],
        efficiency=made["EFFICIENCY"],
    )
    return result


def _browser() -> str | None:
    return shutil.which("chromium") or shutil.which("google-chrome")


def _first_paint_s(path: Path, profile: Path) -> float:
    """Median over new tabs of one headless browser."""
    from selenium import webdriver  # noqa: PLC0415 - may be missing
    from selenium.webdriver.chrome.service import Service  # noqa: PLC0415
    from selenium.webdriver.support.ui import WebDriverWait  # noqa: PLC0415

    options = webdriver.ChromeOptions()
    options.binary_location = _browser() or ""
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={profile}",
    ):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver") or ""))
    try:
        paints_ms = []
        for _ in range(N_PAINTS):
            driver.get("about:blank")
            driver.get(path.as_uri())
            paints_ms.append(WebDriverWait(driver, 30).until(lambda d: d.execute_script(_PAINT)))
    finally:
        driver.quit()
    return statistics.median(paints_ms) / 1e3


if __name__ == "__main__":
    main(__doc__, {TITLE: rows})
