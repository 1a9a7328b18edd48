"""Data sets: Cora and its stand-in, and the verified download that brings files to the user."""

from ._block_model import stochastic_block_model as stochastic_block_model
from ._download import DataError as DataError
from ._download import cache_dir as cache_dir
from ._download import fetch as fetch
from ._download import find as find
from ._node_classification import NodeClassification as NodeClassification
from ._planetoid import load_cora as load_cora
