"""Simulators: systems on graphs whose truth is known."""

from ._particles import ParticleRun as ParticleRun
from ._particles import ParticleSystem as ParticleSystem
from ._particles import simulate_particles as simulate_particles
