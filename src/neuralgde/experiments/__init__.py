"""Experiments: what the paper ran, and the demonstration."""
