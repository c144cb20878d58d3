"""Pipelines: which stage computes which microbatch when."""
