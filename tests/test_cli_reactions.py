"""`gde fit --sbml`: what it refuses before any work."""

import pytest

from neuralgde import InputError
from neuralgde._cli_reactions import fit_reactions


def test_options_of_tables_are_refused(tmp_path):
    with pytest.raises(InputError, match="--edges: of no use with --sbml"):
        fit_reactions(tmp_path / "model.xml", "runs.csv", tmp_path / "model.gde", {"edges": "roads.csv", "seed": 1})


def test_a_missing_network_is_named(tmp_path):
    with pytest.raises(InputError, match=r"model\.xml: expected an SBML file"):
        fit_reactions(tmp_path / "model.xml", "runs.csv", tmp_path / "model.gde", {"steps": None, "undirected": False})
