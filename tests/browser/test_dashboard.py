"""The dashboard as a person sees it: from the grid to a graph, by clicking."""

import re

import pytest

from benches import workloads

from .conftest import BUILD, TIMES

pytestmark = pytest.mark.browser

NAME = "lookup.LookupVsOneHot"


def _series(page, count):
    """``{label: [(x, y), ...]}`` of the main graph, once it has as many as that."""
    page.wait_for_function(f"(plot => plot && plot.getData().length == {count})($('#main-graph').data('plot'))")
    data = page.evaluate("$('#main-graph').data('plot').getData().map(s => [s.label, s.data])")
    legend = page.locator("#main-graph .legendLabel").all_inner_texts()
    assert legend == [label for label, _ in data]
    return dict(data)


def _axis(page, axis):
    return page.evaluate(f"$('#main-graph').data('plot').getAxes().{axis}axis.options.axisLabel")


def _click_setting(page, panel, text):
    """Click a button in a panel of the side bar."""
    heading = page.locator("#graphdisplay-navigation .panel", has=page.locator(f".panel-heading:text-is('{panel}')"))
    heading.locator(f"a.btn:text-is('{text}')").click()


def test_from_the_grid_to_the_graph(dashboard, visit):
    html, hashes, figures = dashboard
    page = visit(html, "index.html")
    tiles = page.locator("a.benchmark-container")
    tiles.first.wait_for()
    assert sorted(figures) == sorted(tile.get_attribute("href")[1:] for tile in tiles.all())
    page.locator(f"a.benchmark-container[href='#{NAME}.time_lookup']").click()

    sizes = workloads.SIZES
    series = _series(page, len(sizes))
    for n, figure in zip(sizes, figures[f"{NAME}.time_lookup"], strict=True):
        points = series[f"N-{n}; device-cpu"]
        assert [y for _, y in points] == pytest.approx([figure * factor for factor in TIMES])
        assert [x for x, _ in points] == sorted({x for x, _ in points})
    assert _axis(page, "x") == "commits"
    assert _axis(page, "y") in {"nanoseconds", "microseconds", "milliseconds"}
    assert page.locator("#title").inner_text() == f"{NAME}.time_lookup"

    # What a point says: the last commit's figure of the largest table.
    spot = page.evaluate(
        "(plot => { const [x, y] = plot.getData().at(-1).data.at(-1), at = plot.pointOffset({x, y}),"
        " box = plot.getPlaceholder().offset(); return [box.left + at.left, box.top + at.top] })"
        "($('#main-graph').data('plot'))"
    )
    page.mouse.move(*spot)
    tip = page.locator(".tooltip-inner", has_text="@")
    tip.wait_for()
    value, unit, commit = re.fullmatch(r"([\d.]+)(ns|μs|ms) @ (\w+)", tip.inner_text()).groups()
    scale = {"ns": 1e-9, "μs": 1e-6, "ms": 1e-3}[unit]
    assert float(value) * scale == pytest.approx(figures[f"{NAME}.time_lookup"][-1] * TIMES[-1], rel=1e-2)
    assert commit == hashes[-1][:8]
    BUILD.mkdir(exist_ok=True)
    page.screenshot(path=BUILD / "dashboard.png")

    page.locator("#log-scale").click()
    page.wait_for_function("$('#main-graph').data('plot').getAxes().yaxis.options.axisLabel == 'seconds'")


def test_time_over_n_and_filters(dashboard, visit):
    html, _, figures = dashboard
    page = visit(html, "index.html")
    page.locator(f"a.benchmark-container[href='#{NAME}.time_matmul']").click()
    sizes = workloads.SIZES
    _series(page, len(sizes))
    _click_setting(page, "N", sizes[-1])
    assert f"N-{sizes[-1]}; device-cpu" not in _series(page, len(sizes) - 1)
    _click_setting(page, "N", sizes[-1])
    _series(page, len(sizes))

    _click_setting(page, "x-axis", "N")
    (points,) = _series(page, 1).values()
    assert [x for x, _ in points] == list(sizes)
    assert [y for _, y in points] == pytest.approx([TIMES[-1] * y for y in figures[f"{NAME}.time_matmul"]])
    assert _axis(page, "x") == "N"
    BUILD.mkdir(exist_ok=True)
    page.screenshot(path=BUILD / "dashboard-n.png")


def test_speedup_has_its_unit(dashboard, visit):
    html, _, figures = dashboard
    page = visit(html, "index.html")
    page.locator(f"a.benchmark-container[href='#{NAME}.track_speedup']").click()
    last = _series(page, len(workloads.SIZES))[f"N-{workloads.SIZES[-1]}; device-cpu"]
    assert last[0][1] == pytest.approx(figures[f"{NAME}.track_speedup"][-1])
    assert _axis(page, "y") == "times"


def test_lists(dashboard, visit):
    html, _, figures = dashboard
    page = visit(html, "index.html")
    page.locator("#nav a", has_text="Benchmark list").click()
    rows = page.locator("#summarylist-body tbody tr")
    rows.first.wait_for()
    count = rows.count()
    assert count >= len(figures) * len(workloads.SIZES)
    page.locator("#summarylist-body th", has_text="Value").click()
    page.locator("#summarylist-body th.asc, #summarylist-body th.desc").wait_for()
    assert rows.count() == count
    assert any("times" in text for text in page.locator("#summarylist-body td.value").all_inner_texts())

    page.locator("#nav a", has_text="Regressions").click()
    page.locator("#regressions-body a", has_text="LookupVsOneHot.time_lookup").first.wait_for()
