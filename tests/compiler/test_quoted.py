"""The source's functions are told with a program, as they stand in their files."""

from graphpar.codegen.quoted import quoted
from graphpar.ir.graph import Origin

TEXT = """import torch

class Model:
    def __init__(self):
        self.size = 3

    def forward(self, x):
        def inner(y):
            return y * 2

        return inner(x)

def helper(x):
    return x
"""


def origins(path, *lines):
    return [Origin("", str(path), line) for line in lines]


def test_the_outermost_functions_that_values_come_from(tmp_path):
    (tmp_path / "model.py").write_text(TEXT)
    found = quoted(origins(tmp_path / "model.py", 9, 11))
    (function,) = found["model.py"]
    assert function["first"] == 7
    assert function["text"].split("\n") == TEXT.splitlines()[6:11]
    both = quoted(origins(tmp_path / "model.py", 14, 9))
    assert [function["first"] for function in both["model.py"]] == [7, 13]


def test_files_of_one_name_are_not_quoted(tmp_path):
    places = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "model.py").write_text(TEXT)
        places += origins(tmp_path / folder / "model.py", 9)
    (tmp_path / "other.py").write_text(TEXT)
    assert list(quoted([*places, *origins(tmp_path / "other.py", 14)])) == ["other.py"]


def test_what_cannot_be_read_is_left_out(tmp_path):
    (tmp_path / "broken.py").write_text("def f(:\n")
    assert quoted([*origins("<stdin>", 1), *origins(tmp_path / "broken.py", 1), Origin()]) == {}
