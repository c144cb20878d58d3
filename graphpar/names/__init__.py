"""Names: which index sets a model's tensors are made of, found by unification over the op rules."""
