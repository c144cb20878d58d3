"""Proof that a build computes what the source model computes."""
