"""`python -m tools.vendor`: the libraries inside the HTML page, fetched from npm anew and held to their sums.

graphpar/viz/page/vendor/vendor.json names each package, its version and the sha256 of every file taken from it. To move
to another version, change it there and run with `--pin`, which writes the new sums.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "graphpar" / "viz" / "page" / "vendor"
LIST = FOLDER / "vendor.json"


def main() -> None:
    """Write every file of the list, or say which do not have their sum and write nothing."""
    parser = argparse.ArgumentParser(prog="python -m tools.vendor", description="fetch the page's libraries from npm")
    parser.add_argument("--pin", action="store_true", help="write the sums of what was fetched into vendor.json")
    pin: bool = parser.parse_args().pin
    packages = json.loads(LIST.read_text(encoding="utf-8"))
    found: dict[str, bytes] = {}
    for package in packages:
        found |= fetched(package)
    if pin:
        for file in (file for package in packages for file in package["files"]):
            file["sha256"] = digest(found[file["name"]])
        LIST.write_text(json.dumps(packages, indent=2) + "\n", encoding="utf-8")
    elif wrong := differing(packages, found):
        sys.exit("not what vendor.json says:\n" + "\n".join(wrong))
    for name, content in found.items():
        (FOLDER / name).write_bytes(content)
        print(f"{name}  {len(content)} bytes")


def fetched(package: dict[str, Any]) -> dict[str, bytes]:
    """The files of one package, by the names that they have here."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = f"{package['package']}@{package['version']}"
        subprocess.run(
            ["npm", "pack", "--silent", "--pack-destination", folder, wanted],
            check=True,
            cwd=folder,
            capture_output=True,
        )
        (archive,) = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as tar:
            return {file["name"]: _read(tar, f"package/{file['from']}") for file in package["files"]}


def differing(packages: list[dict[str, Any]], found: dict[str, bytes]) -> list[str]:
    """A line for each file whose sum is another than that of the list."""
    return [
        f"{file['name']} of {package['package']}@{package['version']}: {digest(found[file['name']])}"
        for package in packages
        for file in package["files"]
        if digest(found[file["name"]]) != file["sha256"]
    ]


def digest(content: bytes) -> str:
    """Its sha256."""
    return hashlib.sha256(content).hexdigest()


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    member = tar.extractfile(name)
    if member is None:
        raise ValueError(f"{name} is no file")
    return member.read()


if __name__ == "__main__":
    main()
