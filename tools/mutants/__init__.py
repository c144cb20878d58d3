"""How good the verifier is: it must reject wrong programs. `python -m tools.mutants`.

A mutant is a right program with a mistake in it. The table (`table.py`) has some for every way in which a distributed
program goes wrong: edits of the generated text (`texts.py`, `states.py`), of its plan (`plans.py`), and of a function
of the runtime for as long as one verification takes (`runtimes.py`). Each is judged twice (`judge.py`): by
`graphpar check`, which reads the text, and by `graphpar verify`, which runs it. What neither rejects, though it
computes something else, is a hole.
"""
