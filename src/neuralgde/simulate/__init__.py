"""Simulators: systems on graphs whose truth is known."""

from ._particle_files import check_particle_file as check_particle_file
from ._particle_files import write_particles as write_particles
from ._particles import ParticleRun as ParticleRun
from ._particles import ParticleSystem as ParticleSystem
from ._particles import simulate_particles as simulate_particles
