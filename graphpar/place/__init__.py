"""Placement: the layout of the spec as a state on every value, and a transition wherever two states meet."""
