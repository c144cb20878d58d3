"""Orders that are taken back.

What it does   rows that are sorted, computed on and put back in their order are never sorted; a product by groups of
               sorted rows becomes the product of each row with the matrix of its own group.
Why            sorting needs all rows, and then no dimension of them can be cut; what is computed needs no order.
When not       some value of sorted rows is used in another way than row by row.
"""

from graphpar.rewrite.passes import Pass
from graphpar.rewrite.permuted import unsort

unsorted = Pass(whole=unsort)
