"""Graphs: data, builders, operators, streams of graphs in time."""

from ._graph import Graph as Graph
from ._layout import Layout as Layout
from ._operators import AbstractOperator as AbstractOperator
from ._stream import GraphStream as GraphStream
