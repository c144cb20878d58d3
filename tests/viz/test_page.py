"""The page in Chromium: it opens without a complaint, answers who points at it, and plays."""

import json
import time
from dataclasses import replace
from typing import NamedTuple

import chromium
import pytest
from compiled_zoo import parsed
from deep_zoo import deep

from graphpar.compiler import compile_captured
from graphpar.explain.memory import by_place, spell
from graphpar.explain.traffic import traffic
from graphpar.viz.command import visualize
from graphpar.viz.heading import heading
from graphpar.viz.page import page
from graphpar.viz.picture import Exchange, Module
from graphpar.viz.walk import draw

pytestmark = [chromium.needs_chromium, pytest.mark.xdist_group("chromium")]

TENSOR = [{"batch": "dp"}, {"heads": "tp"}, {"d_ff": "tp"}, {"vocab": "tp"}, {"seq": "tp"}]
TENSOR_SPEC = {"mesh": {"dp": 2, "tp": 2}, "layout": TENSOR}
STAGED_SPEC = {
    "mesh": {"pp": 2, "tp": 2},
    "layout": [{"heads": "tp"}, {"d_ff": "tp"}, {"vocab": "tp"}],
    "uneven": {"vocab": "pad"},
    "pipeline": {"axis": "pp", "schedule": "1f1b", "microbatches": 4},
}
MEGABYTE = 1 << 20


class Made(NamedTuple):
    page: object
    plan: dict
    text: str


def make(folder, model, layers, spec):
    source = {"model": model, "spec_file": "spec.yaml"}
    compile_captured(deep(model, layers).captured, parsed({"version": 1, **spec}), source).write(folder)
    visualize(folder, [folder / "graph.html"])
    return Made(
        folder / "graph.html", json.loads((folder / "plan.json").read_text()), (folder / "model.py").read_text()
    )


@pytest.fixture(scope="module")
def tensor(tmp_path_factory):
    return make(tmp_path_factory.mktemp("tensor"), "llama_style", 3, TENSOR_SPEC)


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    return make(tmp_path_factory.mktemp("staged"), "nanogpt", 4, STAGED_SPEC)


@pytest.fixture(scope="module")
def driver():
    browser = chromium.start()
    yield browser
    browser.driver.quit()


@pytest.fixture
def browser(driver, tmp_path):
    """Every test ends with a look at the console, and leaves a picture."""
    driver.complaints()
    yield driver
    assert driver.screenshot(tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")
    assert driver.complaints() == []


def show(browser, view):
    browser.one(f"nav a[href='#{view}']").click()
    browser.wait(lambda: browser.one(f"#{view}").is_displayed())


def point(browser, selector):
    """The card of the thing in the middle of what a selector finds."""
    browser.run(
        "const target = document.querySelector(arguments[0]); const box = target.getBoundingClientRect();"
        "const at = { clientX: box.x + box.width / 2, clientY: box.y + box.height / 2, bubbles: true };"
        "target.dispatchEvent(new MouseEvent('mousemove', at));",
        selector,
    )
    return browser.text("#card")


def line_of(made, code):
    return next(n for n, text in enumerate(made.text.splitlines(), start=1) if code in text)


def search(browser, words):
    box = browser.one("#search input")
    box.clear()
    box.send_keys(words)
    return browser.wait(lambda: browser.all("#search li"))


@pytest.mark.parametrize("made", ["tensor", "staged"])
def test_every_view_opens(made, browser, request, tmp_path):
    made = request.getfixturevalue(made)
    browser.open(made.page)
    views = [link.get_attribute("href").partition("#")[2] for link in browser.all("nav a")]
    assert ("schedule" in views) is bool(made.plan["pipeline"]) and len(views) >= 5
    for view in views:
        show(browser, view)
        assert len(browser.text(f"#{view}")) > 40
        browser.screenshot(tmp_path / f"{view}.png")


def test_pointing_at_a_value_tells_its_axes_states_and_both_lines(browser, tensor):
    browser.open(tensor.page)
    line = line_of(tensor, "= F.linear(attention_norm, self.wq.weight)")
    card = point(browser, f"#drawing g[data-line='{line}']")
    assert "batch@dp seq (kv_heads@tp q_group d_head)" in card or "batch@dp seq (heads@tp d_head)" in card
    states = dict(row.text.split(maxsplit=1) for row in browser.all("#card tr"))
    assert states["dp"] == "cut: batch" and states["tp"] in ("cut: kv_heads", "cut: heads")
    assert tensor.plan["lines"][str(line)]["where"] in card
    assert f"line {line} of model.py" in card and "layers.0.attention.wq.weight" in card


def test_pointing_at_a_collective_tells_why(browser, tensor):
    browser.open(tensor.page)
    name = browser.run("return Object.keys(build.exchanges)[0]")
    card = point(browser, f"#drawing g.node[data-name='{name}']")
    assert "reduce_scatter over tp" in card and "the sum over vocab" in card


def test_pointing_at_an_edge_tells_what_flows(browser, tensor):
    browser.open(tensor.page)
    edge = browser.run("return document.querySelector('#drawing g.edge').dataset.name")
    assert edge.startswith("input")
    assert "tokens" in point(browser, "#drawing g.edge path.wide")


def test_search_finds_a_parameter_and_goes_there(browser, tensor):
    browser.open(tensor.page)
    found = search(browser, "layers.2.attention.wo")
    assert found[0].text.startswith("parameter") and "layers.2.attention.wo.weight" in found[0].text
    browser.one("#search input").send_keys("\n")
    browser.wait(lambda: browser.all("#drawing .found"))
    assert browser.one("#trail button:last-child").text == "layers.*.attention"
    line = line_of(tensor, "self.wo.weight)")
    assert {g.get_attribute("data-line") for g in browser.all("#drawing .found")} == {str(line)}
    show(browser, "ranks")
    assert browser.one("#ranks select").get_attribute("value") == "layers.2.attention.wo.weight"


def test_search_finds_modules_values_and_collectives(browser, tensor):
    browser.open(tensor.page)
    for words, kind in (
        ("feed_forward", "module"),
        ("scaled_dot_product", "value"),
        ("all_gather over tp", "collective"),
    ):
        search(browser, words)
        assert kind in {item.text for item in browser.all("#search li .kind")}


def test_a_module_opens_its_own_picture(browser, tensor):
    browser.open(tensor.page)
    browser.run(
        "[...document.querySelectorAll('#tree a')].find((a) => a.textContent.startsWith('feed_forward')).click()"
    )
    browser.wait(lambda: browser.one("#trail button:last-child").text == "layers.*.feed_forward")
    lines = {g.get_attribute("data-line") for g in browser.all("#drawing g[data-line]")}
    assert str(line_of(tensor, "self.w2.weight")) in lines and str(line_of(tensor, "self.wo.weight)")) not in lines
    assert browser.one("#tree a.current").text.startswith("feed_forward")
    browser.one("#trail button").click()
    browser.wait(lambda: len(browser.all("#drawing g[data-line]")) > len(lines))


def test_the_wheel_zooms(browser, tensor):
    browser.open(tensor.page)
    before = browser.run("return panZoom.getZoom()")
    browser.wheel("#drawing", -200)
    browser.wait(lambda: browser.run("return panZoom.getZoom()") > before)


def test_source_and_program_stand_side_by_side(browser, tensor):
    browser.open(tensor.page)
    show(browser, "code")
    assert browser.run("return document.querySelectorAll('#program .line').length") == tensor.text.count("\n")
    line = line_of(tensor, "F.scaled_dot_product_attention")
    point(browser, f"#program .line[data-line='{line}']")
    same = browser.all("#source .line.same")
    where = tensor.plan["lines"][str(line)]["where"]
    assert [s.get_attribute("data-where") for s in same] == [where]
    assert "scaled_dot_product_attention" in browser.run("return arguments[0].textContent", same[0])


def test_the_table_has_the_numbers_of_the_plan(browser, tensor):
    size = heading(tensor.plan, {}).size
    every = traffic(tensor.plan, size)
    browser.open(tensor.page)
    show(browser, "collectives")
    rows = browser.wait(lambda: browser.all("#collectives .tabulator-row"))
    cells = [
        {c.get_attribute("tabulator-field"): c for c in row.find_elements("css selector", ".tabulator-cell")}
        for row in rows
    ]
    assert sum(int(row["count"].text) for row in cells) == sum(t.count for t in every)
    whole = [row["total"].find_element("css selector", "span").get_attribute("title") for row in cells]
    assert sum(int(title.removesuffix(" B")) for title in whole) == sum(t.bytes for t in every)


def test_the_table_sorts_and_filters(browser, tensor):
    browser.open(tensor.page)
    show(browser, "collectives")
    browser.wait(lambda: browser.all("#collectives .tabulator-row"))
    head = "#collectives .tabulator-col[tabulator-field='%s']"

    def column(field):
        cells = f"#collectives .tabulator-row .tabulator-cell[tabulator-field='{field}']"
        return browser.run("return [...document.querySelectorAll(arguments[0])].map((cell) => cell.textContent)", cells)

    browser.one(head % "kind" + " .tabulator-col-title").click()
    browser.wait(lambda: (kinds := column("kind")) and kinds == sorted(kinds))
    browser.one(head % "reason" + " input").send_keys("vocab")
    browser.wait(lambda: (reasons := column("reason")) and all("vocab" in reason for reason in reasons))


def test_a_row_of_the_table_goes_to_the_graph(browser, tensor):
    browser.open(tensor.page)
    show(browser, "collectives")
    browser.wait(lambda: browser.all("#collectives .tabulator-row"))[0].click()
    browser.wait(lambda: browser.all("#drawing g.node.found"))
    assert browser.one("#graph").is_displayed()


@pytest.mark.parametrize("made", ["tensor", "staged"])
def test_memory_is_that_of_the_plan(made, browser, request):
    made = request.getfixturevalue(made)
    browser.open(made.page)
    show(browser, "memory")
    rows = [[cell.text for cell in row.find_elements("css selector", "td")] for row in browser.all("#memory tr")][1:]
    assert [row[-1] for row in rows] == [spell(held.total) for held in by_place(made.plan)]
    drawn = browser.run(
        "return Chart.getChart(document.querySelector('#memory canvas')).data.datasets.map((d) => d.data)"
    )
    scale = browser.run("return build.memory.bytes")
    kinds = ("parameters", "gradients", "moments", "buffers")
    assert drawn == [[getattr(held, kind) / scale for held in by_place(made.plan)] for kind in kinds]


def test_the_schedule_plays(browser, staged):
    browser.open(staged.page)
    show(browser, "schedule")
    boxes = sum(len(words) for words in staged.plan["pipeline"]["order"].values())
    assert len(browser.all("#schedule rect.action")) == boxes

    def now():
        return float(browser.one("#schedule rect.now").get_attribute("x"))

    start = now()
    assert [rank.text for rank in browser.all("#schedule output span")] == ["pp 0 0F0", "pp 1 waits"]
    browser.one("#schedule button").click()
    browser.wait(lambda: now() > start + 40)
    assert browser.one("#schedule button").text == "pause"
    browser.wait(lambda: browser.all("#schedule rect.on"))
    browser.one("#schedule button").click()
    stood = now()
    assert browser.one("#schedule button").text == "play" and stood == now()
    doing = browser.text("#schedule output")
    for run in browser.run("const at = document.querySelector('#schedule input').value / 1000;"
                           "const end = Math.max(...build.schedule.runs.map((r) => r.end));"
                           "return build.schedule.runs.filter((r) => r.start < (at - .002) * end && (at + .002) * end < r.end)"):  # fmt: skip
        assert f"pp {run['rank']} {run['action']}" in doing


def test_the_schedule_can_be_moved_to_its_end(browser, staged):
    browser.open(staged.page)
    show(browser, "schedule")
    browser.run(
        "const s = document.querySelector('#schedule input'); s.value = 999; s.dispatchEvent(new Event('input'))"
    )
    last = staged.plan["pipeline"]["order"]["0"][-1]
    assert f"pp 0 {last}" in browser.text("#schedule output")


def test_ranks_show_the_parts_of_a_parameter(browser, tensor, staged):
    browser.open(tensor.page)
    show(browser, "ranks")
    browser.run("showTensor('layers.1.feed_forward.w2.weight')")
    assert [cell.text.split("\n")[1] for cell in browser.all("#ranks .cell")] == ["part 0", "part 1"] * 2
    looks = [cell.value_of_css_property("background-color") for cell in browser.all("#ranks .cell")]
    assert looks[0] == looks[2] != looks[1] == looks[3]
    (whole, cut) = tensor.plan["parameters"]["layers.1.feed_forward.w2.weight"]["shape"]
    card = point(browser, "#ranks .cell[data-rank='3']")
    assert "rank 3: dp 1, tp 1" in card and f"{cut // 2}:{cut}" in card and f"all {whole}" in card
    browser.open(staged.page)
    show(browser, "ranks")
    browser.run("showTensor('transformer.h.3.mlp.c_fc.weight')")
    assert [cell.text.split("\n")[1] for cell in browser.all("#ranks .cell")] == ["none", "none", "part 0", "part 1"]


def test_eighty_layers_open_in_three_seconds(browser, tmp_path):
    made = make(tmp_path, "llama_style", 80, TENSOR_SPEC)
    assert made.page.stat().st_size < 5 * MEGABYTE
    start = time.perf_counter()
    browser.open(made.page)
    assert time.perf_counter() - start < 3
    assert search(browser, "layers.79.feed_forward.w1")


HOSTILE = "</script><script>window.harm=1</script><img src=x onerror=window.harm=1>\"'&amp;"


def renamed(module):
    items = tuple(
        renamed(i) if isinstance(i, Module) else replace(i, reason=HOSTILE) if isinstance(i, Exchange) else i
        for i in module.items
    )
    return replace(module, path=f"{module.path}{HOSTILE}", items=items)


def test_names_of_a_model_do_no_harm(browser, tensor, tmp_path):
    plan = json.loads(json.dumps(tensor.plan))
    plan["parameters"][HOSTILE] = plan["parameters"]["output.weight"]
    for entry in plan["collectives"]:
        entry["reason"] = HOSTILE
    picture = replace(draw(tensor.text, plan), plan=plan)
    picture = replace(picture, root=renamed(picture.root))
    text = page(
        picture, replace(heading(plan, {}), model=HOSTILE, source=HOSTILE), tensor.text + f'\n"""{HOSTILE}"""\n'
    )
    (tmp_path / "page.html").write_text(text)
    browser.open(tmp_path / "page.html")
    for link in browser.all("nav a"):
        link.click()
    show(browser, "ranks")
    browser.run("showTensor(arguments[0])", HOSTILE)
    assert any("parameter" in found.text and HOSTILE in found.text for found in search(browser, "onerror"))
    point(browser, "#ranks .cell")
    show(browser, "graph")
    for name in browser.run("return Object.keys(build.pictures)"):
        browser.driver.execute_async_script("const done = arguments[1]; showPicture(arguments[0]).then(done)", name)
    assert browser.run("return window.harm") is None
    assert not browser.all("img")
    assert HOSTILE in browser.text("#model")
