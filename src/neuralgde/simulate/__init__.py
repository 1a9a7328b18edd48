"""Simulators: systems on graphs whose truth is known."""

from ._freeway import FreewayRun as FreewayRun
from ._freeway import simulate_freeway as simulate_freeway
from ._freeway_demand import DemandConfig as DemandConfig
from ._freeway_demand import Incident as Incident
from ._freeway_files import freeway_files as freeway_files
from ._freeway_files import write_freeway as write_freeway
from ._freeway_network import FreewayNetwork as FreewayNetwork
from ._freeway_network import freeway_network as freeway_network
from ._network import ReactionNetwork as ReactionNetwork
from ._particle_files import check_particle_file as check_particle_file
from ._particle_files import write_particles as write_particles
from ._particles import ParticleRun as ParticleRun
from ._particles import ParticleSystem as ParticleSystem
from ._particles import simulate_particles as simulate_particles
from ._rate_equations import RateEquations as RateEquations
from ._rate_equations import solve_rate_equations as solve_rate_equations
from ._reaction import Event as Event
from ._reaction import Hill as Hill
from ._reaction import MassAction as MassAction
from ._reaction import Reaction as Reaction
from ._reaction_files import check_reaction_file as check_reaction_file
from ._reaction_files import write_reactions as write_reactions
from ._repressilator import repressilator as repressilator
from ._sbml import read_sbml as read_sbml
from ._simulate import ReactionRun as ReactionRun
from ._simulate import simulate_reactions as simulate_reactions
