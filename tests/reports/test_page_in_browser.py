"""The page in a browser: what only shows when its scripts run."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from tests.reports.test_communication_section import OPERATION
from tests.reports.test_traffic_between_ranks import pair
from tests.reports.test_where_the_job_stands import GROUP
from tracekit.reports.render import write_report
from tracekit.standstill import Standstill
from tracekit.traffic import Traffic

pytestmark = pytest.mark.browser

WAIT_S = 15


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    chromedriver = shutil.which("chromedriver")
    if not browser or not chromedriver:
        pytest.skip("needs Chromium and chromedriver on the path")
    options = Options()
    options.binary_location = browser
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(argument)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(chromedriver))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="module")
def talkative(healthy):
    """A job with hostile names of groups, messages between many ranks and hosts, and a hang."""
    name = "<img src=x onerror=alert(1)> " + "n" * 300
    sized = replace(OPERATION, roof_gb_s=450.0, fabric="NVLink 4 (18 links)")
    operations = (sized, replace(sized, group=name, operation="</script>"))
    pairs = (*(pair(rank, rank + 1) for rank in range(70)), pair("node-a", "node-b", is_hosts=True))
    traffic = Traffic(n_instances=84, n_unmatched=0, operations=operations, pairs=pairs)
    stands = Standstill(groups=(GROUP, replace(GROUP, description=name)), n_groups=2, wrapped=())
    return replace(healthy, traffic=traffic, standstill=stands)


@pytest.fixture
def opened(driver, folder, request):
    """Opens the page of a fixture at a width and colour scheme, and waits until it is drawn."""

    def open_page(name, *, width=1440, scheme="light", fragment=""):
        path = folder / f"{name}.html"
        if not path.exists():
            write_report(request.getfixturevalue(name), path)
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        driver.get("about:blank")
        driver.get(path.as_uri() + fragment)
        drawn = "return !document.querySelector('.chart') || document.documentElement.dataset.drawn"
        WebDriverWait(driver, WAIT_S).until(lambda d: d.execute_script(drawn))
        return driver

    yield open_page
    driver.execute_script("try { localStorage.clear() } catch { /* about:blank has none */ }")


def texts(driver, selector):
    script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent.trim())"
    return driver.execute_script(script, selector)


def visible_ranks(driver, selector):
    script = """return [...document.querySelectorAll(arguments[0])]
        .filter(row => !row.hidden).map(row => Number(row.dataset.rank))"""
    return driver.execute_script(script, selector)


def enter(driver, element_id, text):
    element = driver.find_element(By.ID, element_id)
    element.clear()
    element.send_keys(text, Keys.ENTER)


def plot(driver, kind, path):
    return driver.execute_script(f"return document.getElementById('chart-{kind}').{path}")


@pytest.mark.parametrize(
    "name", ["straggler", "healthy", "single", "hostile", "large", "alone", "talkative"]
)
def test_the_console_stays_silent_and_nothing_hostile_runs(opened, name):
    driver = opened(name)
    assert driver.get_log("browser") == []
    assert "pwned" not in driver.title
    assert driver.execute_script("return document.querySelectorAll('svg[onload], img').length") == 0


@pytest.mark.parametrize("width", [390, 2560])
@pytest.mark.parametrize("name", ["straggler", "hostile", "large", "alone", "talkative"])
def test_the_page_never_scrolls_sideways(opened, name, width):
    driver = opened(name, width=width)
    driver.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width


def test_bars_are_seen_on_a_phone(opened):
    driver = opened("straggler", width=390)
    script = """return ['#efficiency-tree', '#critical-path', '#why-late', '#arrivals'].map(id => {
        const name = `${id} :is(.flow, .arrivals)`;
        const frame = document.querySelector(name).closest('.scroll').getBoundingClientRect();
        const bar = document.querySelector(`${name} .track`).getBoundingClientRect();
        return bar.width > 100 && bar.right <= frame.right;
    })"""
    assert driver.execute_script(script) == [True] * 4


@pytest.mark.parametrize("width", [390, 1440])
def test_charts_of_bandwidth_keep_their_points_and_roofs_inside(opened, width):
    driver = opened("talkative", width=width)
    driver.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    script = """return [...document.querySelectorAll('.size-charts svg')].map(chart => {
        const frame = chart.getBoundingClientRect();
        return [...chart.querySelectorAll('circle, .roof, .fabric')].map(mark => {
            const box = mark.getBoundingClientRect();
            return box.left >= frame.left && box.right <= frame.right + 1
                && box.top >= frame.top && box.bottom <= frame.bottom + 1;
        });
    })"""
    charts = driver.execute_script(script)
    assert len(charts) == 2
    for marks in charts:
        assert len(marks) >= 3  # a point, the roof of the fit and that of the fabric
        assert all(marks)


def test_saving_and_cure_hang_beside_their_labels(opened):
    driver = opened("straggler", width=700)
    script = """return [...document.querySelectorAll('.labelled')].map(line => {
        const [label, sentence] = line.children;
        const [a, b] = [label.getBoundingClientRect(), sentence.getBoundingClientRect()];
        return b.left >= a.right;
    })"""
    assert driver.execute_script(script) == [True, True]


def test_the_largest_page_is_painted_within_two_seconds(opened):
    driver = opened("large")
    paint = "return performance.getEntriesByName('first-contentful-paint')[0].startTime"
    assert driver.execute_script(paint) < 2000


def test_both_charts_draw_every_rank(opened):
    driver = opened("straggler")
    assert plot(driver, "heat", "data[0].y.length") == 8
    assert plot(driver, "bars", "data.length") == 7
    # Own time in seconds: rank 5 waits for nobody in its 100 ms, the others 20 ms.
    own_s = plot(driver, "heat", "data[0].z.map(row => Number(row[1].toFixed(6)))")
    assert own_s == [0.08] * 5 + [0.1] + [0.08] * 2


def test_buttons_switch_the_heat_map(opened):
    driver = opened("straggler")
    button = driver.find_element(By.XPATH, "//button[text()='Idle']")
    button.send_keys(Keys.ENTER)
    shares = plot(driver, "heat", "data[0].z.map(row => Number(row[1].toFixed(6)))")
    assert shares == [0.05] * 5 + [0.25] + [0.05] * 2
    assert button.get_attribute("aria-pressed") == "true"
    assert texts(driver, "#view-caption") == [
        "Share of the step in which nothing runs on the device."
    ]


def readout(driver, section):
    return texts(driver, f"#{section} .readout")[0]


def test_a_cell_says_its_sentence_on_hover(opened):
    driver = opened("straggler")
    cell = driver.find_element(By.CSS_SELECTOR, "#who-waits-for-whom td[class]")
    ActionChains(driver).move_to_element(cell).perform()
    assert cell.get_attribute("title") == "rank 5 made rank 0 wait 20 ms a step"
    assert readout(driver, "who-waits-for-whom") == "rank 5 made rank 0 wait 20 ms a step"


def test_cells_are_walked_by_arrow_keys(opened):
    driver = opened("straggler")
    first = driver.find_element(By.CSS_SELECTOR, "#compute-of-ranks td[tabindex='0']")
    first.send_keys(Keys.ARROW_RIGHT)
    driver.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    # One to the right of rank 0 and one down, in pipelines of four.
    said = "Rank 5, stage 1: computes 70 ms, waits 0 ns and makes others wait 140 ms"
    assert readout(driver, "compute-of-ranks") == f"{said}, in the mean step"
    driver.switch_to.active_element.send_keys(Keys.ARROW_DOWN)  # The last row: it stays there.
    assert driver.switch_to.active_element.text.startswith("70 ms")
    n_stops = "return document.querySelectorAll('#compute-of-ranks td[tabindex=\"0\"]').length"
    assert driver.execute_script(n_stops) == 1


def test_a_cell_without_a_value_says_so(opened):
    driver = opened("large")
    cell = driver.find_element(By.CSS_SELECTOR, "#who-waits-for-whom tr[data-rank='0'] td.hx")
    driver.execute_script("arguments[0].click()", cell)
    assert readout(driver, "who-waits-for-whom") == "rank 0 and ranks 64\u201379: no waiting"


def test_the_filter_applies_to_charts_and_tables(opened):
    driver = opened("straggler")
    enter(driver, "filter-ranks", "5-6, 0")
    assert plot(driver, "heat", "data[0].y") == ["rank 0", "rank 5", "rank 6"]
    assert plot(driver, "bars", "data[0].y.length") == 3
    assert visible_ranks(driver, "#what-to-fix tr[data-rank]") == [0, 5, 6]
    assert visible_ranks(driver, "#critical-path tr[data-rank]") == [5, 5, 0]
    assert visible_ranks(driver, "table[data-source] tr[data-rank]") == [0, 5, 6]
    assert texts(driver, "#filter-state") == ["3 of 8 ranks, 4 of 4 steps"]


def test_the_step_filter_averages_the_chosen_steps(opened):
    driver = opened("straggler")
    enter(driver, "filter-steps", "1")
    assert plot(driver, "heat", "data[0].x") == ["1"]
    row = texts(driver, 'table[data-source] tr[data-rank="5"] td')
    assert row == ["5", "100 ms", "60 ms", "10 ms", "0 ns", "5 ms", "0 ns", "0 ns", "25 ms"]
    assert texts(driver, "#bars-note") == ["Mean of the chosen steps: 1."]


def test_ranks_at_fault_are_one_press_away_and_all_come_back(opened):
    driver = opened("straggler")
    driver.find_element(By.ID, "filter-faulty").send_keys(Keys.ENTER)
    assert plot(driver, "heat", "data[0].y") == ["rank 5"]
    assert visible_ranks(driver, "#critical-path tr[data-rank]") == [5, 5]
    driver.find_element(By.CSS_SELECTOR, "#filter [type=reset]").send_keys(Keys.ENTER)
    WebDriverWait(driver, WAIT_S).until(lambda d: plot(d, "heat", "data[0].y.length") == 8)
    assert visible_ranks(driver, "table[data-source] tr[data-rank]") == list(range(8))


def test_a_filter_that_cannot_be_read_says_so_and_changes_nothing(opened):
    driver = opened("straggler")
    enter(driver, "filter-ranks", "5-x")
    assert texts(driver, "#filter-state") == ["Write numbers and spans, as in 0-7, 12"]
    field = driver.find_element(By.ID, "filter-ranks")
    assert field.get_attribute("aria-invalid") == "true"
    assert plot(driver, "heat", "data[0].y.length") == 8


def test_a_rank_that_the_summary_leaves_out_can_be_filtered(opened):
    driver = opened("large")
    assert plot(driver, "bars", "data[0].y.length") == 64
    assert plot(driver, "heat", "data[0].y.length") == 1024
    enter(driver, "filter-ranks", "500-600")
    assert plot(driver, "bars", "data[0].y.length") == 64
    assert texts(driver, "#bars-note") == ["64 of 101 chosen devices, the longest own time first."]
    enter(driver, "filter-ranks", "512")
    assert texts(driver, "table[data-source] tbody td")[:2] == ["512", "100 ms"]


def test_a_table_is_sorted_by_keyboard(opened):
    driver = opened("straggler")
    head = driver.find_element(By.XPATH, "//th[contains(., 'Wait caused')]")
    button = head.find_element(By.TAG_NAME, "button")
    rows = "#what-to-fix tr[data-rank]"
    button.send_keys(Keys.ENTER)
    # Rank 5 caused 21 ms, every other rank as many ms as its number.
    assert visible_ranks(driver, rows) == [5, 7, 6, 4, 3, 2, 1, 0]
    assert head.get_attribute("aria-sort") == "descending"
    button.send_keys(Keys.SPACE)
    assert visible_ranks(driver, rows) == [0, 1, 2, 3, 4, 6, 7, 5]
    assert head.get_attribute("aria-sort") == "ascending"


def test_a_deep_link_opens_its_finding(opened):
    driver = opened("straggler", fragment="#finding/straggler-rank/rank%205")
    active = driver.switch_to.active_element
    assert active.get_attribute("id") == "finding/straggler-rank/rank%205"
    top = driver.execute_script("return arguments[0].getBoundingClientRect().top", active)
    assert 0 <= top < 400


def test_a_deep_link_to_a_row_reaches_it(opened):
    driver = opened("straggler", fragment="#finding/power-cap/")
    assert "power limit" in driver.switch_to.active_element.text


def test_a_broken_fragment_is_ignored(opened):
    driver = opened("straggler", fragment="#finding/%E0%A4%A/x")
    assert driver.get_log("browser") == []


def test_the_theme_follows_the_system_and_the_button(opened):
    driver = opened("straggler", scheme="dark")
    page = "return getComputedStyle(document.body).backgroundColor"
    dark = driver.execute_script(page)
    button = driver.find_element(By.ID, "theme")
    assert button.text == "Light theme"
    text_dark = plot(driver, "bars", "layout.font.color")
    button.click()
    assert driver.execute_script(page) != dark
    assert button.text == "Dark theme"
    assert plot(driver, "bars", "layout.font.color") != text_dark


def test_a_long_name_expands_by_keyboard(opened):
    driver = opened("hostile")
    name = driver.find_element(By.CSS_SELECTOR, "#what-to-fix dd bdi.long")
    n_short = len(name.text)
    name.send_keys(Keys.ENTER)
    assert len(name.text) > 3000 > n_short
    assert name.get_attribute("aria-expanded") == "true"
    name.send_keys(Keys.SPACE)
    assert len(name.text) == n_short


def test_the_first_tab_stop_skips_to_the_findings(opened):
    driver = opened("straggler")
    driver.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    assert driver.switch_to.active_element.text == "Skip to the findings"


def test_a_dark_page_is_printed_light(opened):
    driver = opened("straggler", scheme="dark")
    dark = plot(driver, "bars", "layout.font.color")
    driver.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert plot(driver, "bars", "layout.font.color") != dark
    driver.execute_script("dispatchEvent(new Event('afterprint'))")
    assert plot(driver, "bars", "layout.font.color") == dark


def test_printing_opens_everything_and_closes_it_again(opened):
    driver = opened("straggler")
    n_open = "return document.querySelectorAll('details[open]').length"
    before = driver.execute_script(n_open)
    driver.execute_script("dispatchEvent(new Event('beforeprint'))")
    everything = driver.execute_script("return document.querySelectorAll('details').length")
    assert driver.execute_script(n_open) == everything > before
    driver.execute_script("dispatchEvent(new Event('afterprint'))")
    assert driver.execute_script(n_open) == before


def test_a_command_is_copied_whole(opened):
    driver = opened("straggler")
    driver.find_element(By.CSS_SELECTOR, ".copy").send_keys(Keys.ENTER)
    WebDriverWait(driver, WAIT_S).until(lambda d: texts(d, ".copy")[0] == "Copied")
    enter(driver, "filter-ranks", Keys.CONTROL + "v")
    pasted = driver.find_element(By.ID, "filter-ranks").get_attribute("value")
    assert pasted == "DataLoader(dataset, num_workers=8, pin_memory=True)"
