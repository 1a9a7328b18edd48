"""Benchmarks: ours and the peers', the same work in one run."""
