"""Build tools: each module calls ``builder`` in the way that its tool expects."""
