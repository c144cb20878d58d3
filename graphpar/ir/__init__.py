"""The graph: small, immutable, typed. Knows nothing of torch."""
