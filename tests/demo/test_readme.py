"""README.md shows what a build gives."""

import re

from tools import readme

TEXT = readme.README.read_text(encoding="utf-8")


def test_the_example_is_from_a_build(tmp_path):
    build, spec = readme.compile_demo(tmp_path / "demo")
    shown = readme.example((build / "model.py").read_text(encoding="utf-8"), spec)
    assert shown in TEXT, "`python -m tools.readme` writes it anew"


def test_links_lead_somewhere():
    links = [part.partition(")")[0] for part in TEXT.split("](")[1:]]
    assert links
    assert all((readme.ROOT / link).exists() for link in links if "://" not in link)


def test_figures_are_written_between_their_marks():
    document = {
        "results": [
            {
                "layout": "tp",
                "width": 128,
                "milliseconds": {"graphpar": 10.0, "by hand": 12.5},
                "ratios": [{"of": "graphpar", "to": "by hand", "median": 0.8, "low": 0.7, "high": 0.9}],
            }
        ],
        "machine": {"cpu": "a cpu", "cores": 2, "torch": "2.13.0"},
    }
    document |= {"rounds": 40, "layers": 4, "batch": 4, "length": 128, "ranks": 2}
    table = readme.figures(document)
    assert "| tensor parallel | 128 | 10.0 ms | by hand: 12.5 ms | 0.800 (0.700 to 0.900) |" in table
    once = readme.replaced("a\n<!-- figures -->\nold\n<!-- /figures -->\nz", "figures", table)
    assert once == f"a\n<!-- figures -->\n{table}\n<!-- /figures -->\nz"
    assert readme.replaced(once, "figures", table) == once


def test_every_picture_of_the_page_is_there_and_is_that_of_a_spec():
    docs = readme.ROOT / "docs"
    shown = set(re.findall(r"\(pictures/([\w-]+)\.svg\)", (docs / "pictures.md").read_text(encoding="utf-8")))
    assert shown == {file.stem for file in (docs / "pictures").glob("*.svg")}
    specs = {file.stem for file in (readme.ROOT / "tools" / "pictures").glob("*/*.yaml")}
    assert {name.rpartition("-")[0] for name in shown} == specs
    for name in shown:
        assert (docs / "pictures" / f"{name}.svg").read_text(encoding="utf-8").rstrip().endswith("</svg>")
