"""A second opinion: the states of a generated program, derived again from its text alone.

Nothing here imports the compiler. What the text does is worked out statement by statement over the syntax tree, from
how `plan.json` says that parameters and inputs lie on the mesh and from rules of its own.
"""
