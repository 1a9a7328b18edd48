"""Simulators: systems on graphs whose truth is known."""

from ._freeway import FreewayRun as FreewayRun
from ._freeway import simulate_freeway as simulate_freeway
from ._freeway_demand import DemandConfig as DemandConfig
from ._freeway_demand import Incident as Incident
from ._freeway_files import freeway_files as freeway_files
from ._freeway_files import write_freeway as write_freeway
from ._freeway_network import FreewayNetwork as FreewayNetwork
from ._freeway_network import freeway_network as freeway_network
from ._particle_files import check_particle_file as check_particle_file
from ._particle_files import write_particles as write_particles
from ._particles import ParticleRun as ParticleRun
from ._particles import ParticleSystem as ParticleSystem
from ._particles import simulate_particles as simulate_particles
