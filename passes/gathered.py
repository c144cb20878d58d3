"""Matrices picked by row.

What it does   `x @ w[chosen]`, however it is spelled, becomes one op: each row with the matrix of its own expert.
Why            a matrix for each row is more memory than any of the rest, and hides that the stack can be cut by expert.
When not       the picked matrices are used in another way than by one product.
"""

from graphpar.rewrite import gathered as forms
from graphpar.rewrite.passes import Pass

gathered = Pass({"matmul": forms.matmul, "einsum": forms.einsum})
