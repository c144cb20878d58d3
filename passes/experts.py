"""Mixtures of experts.

What it does   from the choice of experts to the weighted sum of their results: tokens are sent to experts, rows by
               expert are computed on, and their results combined.
Why            rows by expert can be cut by tokens or by experts, so that experts can lie on several ranks.
When not       something else than ops within rows lies between; the model is then refused, since rows of an expert
               differ in number with the data.
"""

from graphpar.rewrite.experts import find
from graphpar.rewrite.passes import Pass

experts = Pass(whole=find)
