"""The libraries inside the page are those of the list, unchanged, each with its licence."""

import json

from tools.vendor import FOLDER, LIST, differing, digest

PACKAGES = json.loads(LIST.read_text())
FILES = {file["name"]: file["sha256"] for package in PACKAGES for file in package["files"]}


def test_every_file_has_its_sum_and_no_other_is_there():
    there = {path.name: digest(path.read_bytes()) for path in FOLDER.iterdir() if path != LIST}
    assert there == FILES


def test_every_package_has_its_licence():
    for package in PACKAGES:
        assert package["version"] and package["license"]
        (licence,) = [file["name"] for file in package["files"] if file["name"].endswith(".LICENSE")]
        assert len((FOLDER / licence).read_text()) > 1000


def test_a_changed_file_is_told():
    content = {name: (FOLDER / name).read_bytes() for name in FILES}
    assert differing(PACKAGES, content) == []
    (told,) = differing(PACKAGES, {**content, "chart.js": content["chart.js"] + b" "})
    assert told.startswith("chart.js of chart.js@")


def test_no_library_can_end_the_script_around_it():
    for name in FILES:
        if name.endswith((".js", ".css")):
            text = (FOLDER / name).read_text(encoding="utf-8")
            assert not any(mark in text for mark in ("</script", "<!--", "<script", "</style"))
