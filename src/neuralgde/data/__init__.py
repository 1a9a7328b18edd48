"""Data sets, windows of them, undersampling, and the verified download that brings files to the user."""

from ._block_model import stochastic_block_model as stochastic_block_model
from ._download import DataError as DataError
from ._download import cache_dir as cache_dir
from ._download import data_folders as data_folders
from ._download import fetch as fetch
from ._download import find as find
from ._england import EnglandMobility as EnglandMobility
from ._england import load_england as load_england
from ._node_classification import NodeClassification as NodeClassification
from ._pemsd7m import load_pemsd7m as load_pemsd7m
from ._planetoid import load_cora as load_cora
from ._sensors import SensorSeries as SensorSeries
from ._undersample import keep_sensors as keep_sensors
from ._undersample import keep_snapshots as keep_snapshots
from ._windows import Scale as Scale
from ._windows import Windows as Windows
from ._windows import make_windows as make_windows
from ._windows import window_rows as window_rows
