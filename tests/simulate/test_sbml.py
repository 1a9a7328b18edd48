"""SBML: what each element of a model becomes, and errors that name what is not supported."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import neuralgde as gde
from neuralgde.simulate import read_sbml, simulate_reactions

MATH = 'xmlns="http://www.w3.org/1998/Math/MathML"'
X = "<ci>X</ci>"


def apply(operator, *arguments):
    return f"<apply><{operator}/>{''.join(arguments)}</apply>"


def number(value):
    return f"<cn>{value}</cn>"


def math(body):
    return f"<math {MATH}>{body}</math>"


TIME = '<csymbol encoding="text" definitionURL="http://www.sbml.org/sbml/symbols/time">t</csymbol>'


def species(name, amount=10, extra="", quantity="initialAmount", only_amount="true"):
    return (
        f'<species id="{name}" compartment="C" {quantity}="{amount}" hasOnlySubstanceUnits="{only_amount}" '
        f'boundaryCondition="false" constant="false" {extra}/>'
    )


def reaction(law, *, name="r", reactants="", products="", extra='reversible="false" fast="false"', local=""):
    def side(tag, text):
        parts = [p.split(":") for p in text.split()]
        references = "".join(f'<speciesReference species="{s}" stoichiometry="{n}" constant="true"/>' for s, n in parts)
        return f"<{tag}>{references}</{tag}>" if references else ""

    return (
        f'<reaction id="{name}" {extra}>{side("listOfReactants", reactants)}{side("listOfProducts", products)}'
        f"<kineticLaw>{math(law)}{local}</kineticLaw></reaction>"
    )


def model(tmp_path, *, species_list, reactions="", lists="", before="", after="", attributes=""):
    text = f"""<?xml version="1.0" encoding="UTF-8"?>
<sbml xmlns="http://www.sbml.org/sbml/level3/version1/core" level="3" version="1" {attributes}>
<model id="m">{before}
<listOfCompartments><compartment id="C" spatialDimensions="3" size="2" constant="false"/></listOfCompartments>
<listOfSpecies>{species_list}</listOfSpecies>
<listOfParameters><parameter id="k" value="3" constant="true"/><parameter id="q" value="5" constant="false"/>
</listOfParameters>
{lists}
{f"<listOfReactions>{reactions}</listOfReactions>" if reactions else ""}
{after}
</model></sbml>"""
    path = tmp_path / "model.xml"
    path.write_text(text)
    return path


def rates(network, *counts):
    return np.asarray(network.propensities(0.0, jnp.array(counts)))


def rule(variable, formula):
    return f'<listOfRules><assignmentRule variable="{variable}">{math(formula)}</assignmentRule></listOfRules>'


def event(trigger, variable, value, *, extra=""):
    start = '<trigger initialValue="false" persistent="true">'
    return (
        f'<event id="e" useValuesFromTriggerTime="true">{start}{math(trigger)}</trigger>{extra}'
        f'<listOfEventAssignments><eventAssignment variable="{variable}">{math(value)}</eventAssignment>'
        "</listOfEventAssignments></event>"
    )


def test_amounts_and_concentrations(tmp_path):
    lists = species("X") + species("Y", 4, quantity="initialConcentration", only_amount="false")
    law = apply("times", "<ci>k</ci>", X, "<ci>Y</ci>")
    net = read_sbml(model(tmp_path, species_list=lists, reactions=reaction(law, reactants="X:2", products="Y:1")))
    np.testing.assert_array_equal(net.initial, [10, 8])
    np.testing.assert_allclose(rates(net, 10.0, 8.0), [3 * 10 * 8 / 2])
    np.testing.assert_array_equal(net.stoichiometry, [[-2, 1]])
    assert dict(zip(net.parameter_names, net.parameters, strict=True)) == {"k": 3, "q": 5, "C": 2}


def test_functions_local_parameters_and_rules(tmp_path):
    difference = apply("minus", "<ci>a</ci>", "<ci>b</ci>")
    function = (
        '<listOfFunctionDefinitions><functionDefinition id="f">'
        + math(f"<lambda><bvar><ci>a</ci></bvar><bvar><ci>b</ci></bvar>{difference}</lambda>")
        + "</functionDefinition></listOfFunctionDefinitions>"
    )  # fmt: skip
    local = '<listOfLocalParameters><localParameter id="k" value="7"/></listOfLocalParameters>'
    call = f"<apply><ci>f</ci>{apply('times', '<ci>k</ci>', X)}<ci>q</ci></apply>"
    path = model(
        tmp_path, species_list=species("X"), before=function, lists=rule("q", apply("divide", X, number(4))),
        reactions=reaction(call, reactants="X:1", local=local) + reaction("<ci>k</ci>", name="s", products="X:1"),
    )  # fmt: skip
    net = read_sbml(path)
    np.testing.assert_allclose(rates(net, 10.0), [7 * 10 - 2.5, 3])
    np.testing.assert_allclose(rates(net.with_parameters(**{"r.k": 1.0}), 10.0), [10 - 2.5, 3])


def test_a_compartment_without_dimensions_still_has_a_volume(tmp_path):
    path = model(tmp_path, species_list=species("X", only_amount="false"), reactions=reaction(X, reactants="X:1"))
    path.write_text(path.read_text().replace('spatialDimensions="3" ', ""))
    np.testing.assert_allclose(rates(read_sbml(path), 10.0), [5])


def test_stoichiometry_given_by_a_formula(tmp_path):
    def path(lists):
        named = reaction(X, products="X:1").replace('stoichiometry="1"', 'id="s" stoichiometry="1"')
        named = named.replace('constant="true"', 'constant="false"')
        return model(tmp_path, species_list=species("X"), reactions=named, lists=lists)

    formula = apply("plus", "<ci>k</ci>", number(1))
    assignment = f'<initialAssignment symbol="s">{math(formula)}</initialAssignment>'
    net = read_sbml(path(f"<listOfInitialAssignments>{assignment}</listOfInitialAssignments>"))
    np.testing.assert_array_equal(net.stoichiometry, [[4]])
    np.testing.assert_array_equal(read_sbml(path(rule("s", formula))).stoichiometry, [[4]])
    with pytest.raises(gde.InputError, match="reaction 'r' has a stoichiometry that changes"):
        read_sbml(path(rule("s", X)))


def test_conversion_factors_scale_the_change(tmp_path):
    lists = species("X", extra='conversionFactor="k"') + species("Y")
    path = model(tmp_path, species_list=lists, reactions=reaction(X, reactants="X:1", products="Y:2"))
    np.testing.assert_array_equal(read_sbml(path).stoichiometry, [[-3, 2]])


def test_initial_assignments_follow_each_other(tmp_path):
    def assign(symbol, formula):
        return f'<initialAssignment symbol="{symbol}">{math(formula)}</initialAssignment>'

    lists = (
        "<listOfInitialAssignments>"
        + assign("X", apply("times", number(2), "<ci>q</ci>"))
        + assign("q", apply("plus", "<ci>C</ci>", number(1)))
        + assign("C", number(4))
        + "</listOfInitialAssignments>"
    )
    net = read_sbml(model(tmp_path, species_list=species("X", only_amount="false"), lists=lists))
    # q = C + 1 = 5 and X is a concentration, 10, in a volume of 4.
    np.testing.assert_array_equal(net.initial, [40])
    assert dict(zip(net.parameter_names, net.parameters, strict=True)) == {"k": 3, "q": 5, "C": 4}


def test_events(tmp_path):
    trigger = apply("geq", TIME, number(2))
    extra = f"<priority>{math(number(3))}</priority><delay>{math(number(1.5))}</delay>"
    events = f"<listOfEvents>{event(trigger, 'X', number(6), extra=extra)}</listOfEvents>"
    path = model(tmp_path, species_list=species("X", only_amount="false"), after=events)
    net = read_sbml(path)
    assert not net.events[0].starts_true and net.events[0].persistent
    # A concentration of 6 in a volume of 2, after the delay.
    made = simulate_reactions(net, np.arange(6.0), runs=2, key=jax.random.key(0))
    np.testing.assert_array_equal(made.states[..., 0], [[10, 10, 10, 10, 12, 12]] * 2)


def test_reversible_reactions_become_two(tmp_path):
    lists = species("X") + species("Y")
    law = apply(
        "times", "<ci>C</ci>",
        apply("minus", apply("times", "<ci>k</ci>", X), apply("times", "<ci>q</ci>", "<ci>Y</ci>")),
    )  # fmt: skip
    both = 'reversible="true" fast="false"'
    path = model(tmp_path, species_list=lists, reactions=reaction(law, reactants="X:1", products="Y:1", extra=both))
    net = read_sbml(path)
    np.testing.assert_allclose(rates(net, 10.0, 4.0), [2 * 3 * 10, 2 * 5 * 4])
    np.testing.assert_array_equal(net.stoichiometry, [[-1, 1], [1, -1]])
    # X (X - 1) is a difference too, and no backward reaction.
    pair = apply("times", "<ci>k</ci>", X, apply("minus", X, number(1)))
    path = model(tmp_path, species_list=lists, reactions=reaction(pair, reactants="X:2", products="Y:1", extra=both))
    np.testing.assert_allclose(rates(read_sbml(path), 10.0, 4.0), [3 * 90])


def test_boundary_species_stay(tmp_path):
    lists = species("X") + species("S", 0).replace('boundaryCondition="false"', 'boundaryCondition="true"')
    path = model(tmp_path, species_list=lists, reactions=reaction("<ci>k</ci>", reactants="S:1", products="X:1"))
    net = read_sbml(path)
    np.testing.assert_array_equal(net.stoichiometry, [[1, 0]])
    x = simulate_reactions(net, [0.0, 3.0], runs=200, key=jax.random.key(0)).states
    assert (x[:, 1, 1] == 0).all()
    assert float(x[:, 1, 0].mean()) == pytest.approx(19, abs=1)


MANY = apply("gt", X, number(20))


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        (apply("power", X, number(2)), 100.0),
        (apply("root", X), np.sqrt(10)),
        (f"<apply><root/><degree>{number(3)}</degree>{X}</apply>", np.cbrt(10)),
        (apply("log", X), 1.0),
        (f"<apply><log/><logbase>{number(2)}</logbase>{X}</apply>", np.log2(10)),
        (apply("ln", X), np.log(10)),
        (apply("abs", apply("minus", X)), 10.0),
        (f"<piecewise><piece>{number(1)}{MANY}</piece><otherwise>{X}</otherwise></piecewise>", 10.0),
        (apply("plus", "<pi/>", "<exponentiale/>"), np.pi + np.e),
        (apply("times", number(2), apply("factorial", number(3))), 12.0),
        ('<cn type="e-notation">2<sep/>-1</cn>', 0.2),
        ('<cn type="rational">1<sep/>4</cn>', 0.25),
        (apply("plus", X, TIME), 10.0),
        (apply("arccot", X), np.arctan(0.1)),
        (apply("sech", number(1)), 1 / np.cosh(1)),
    ],
)  # fmt: skip
def test_mathematics(formula, value, tmp_path):
    net = read_sbml(model(tmp_path, species_list=species("X"), reactions=reaction(formula, products="X:1")))
    np.testing.assert_allclose(rates(net, 10.0), [value], rtol=1e-6)


def test_the_rate_of_a_reaction_can_be_named(tmp_path):
    path = model(
        tmp_path, species_list=species("X"), lists=rule("q", apply("times", number(2), "<ci>r</ci>")),
        reactions=reaction(apply("times", "<ci>k</ci>", X), products="X:1") + reaction("<ci>q</ci>", name="s"),
    )  # fmt: skip
    np.testing.assert_allclose(rates(read_sbml(path), 10.0), [30, 60])


RATE_RULE = f'<listOfRules><rateRule variable="q">{math(number(1))}</rateRule></listOfRules>'
ALGEBRAIC = f"<listOfRules><algebraicRule>{math(apply('minus', '<ci>q</ci>', X))}</algebraicRule></listOfRules>"
LAWLESS = reaction("", products="X:1").replace(f"<kineticLaw>{math('')}</kineticLaw>", "")
DELAY = (
    '<apply><csymbol encoding="text" definitionURL="http://www.sbml.org/sbml/symbols/delay">delay</csymbol>'
    f"{X}{number(1)}</apply>"
)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"lists": RATE_RULE}, ["'q'", "rate rule"]),
        ({"lists": ALGEBRAIC}, ["algebraic rule"]),
        ({"reactions": reaction(DELAY, products="X:1")}, ["reaction 'r'", "delay"]),
        ({"reactions": reaction(X, products="X:1", extra='reversible="false" fast="true"')}, ["reaction 'r'", "fast"]),
        ({"reactions": LAWLESS}, ["reaction 'r'", "kinetic law"]),
        ({"species_list": species("X").replace('initialAmount="10"', "")}, ["species 'X'", "initial amount"]),
        (
            {"attributes": 'xmlns:comp="http://www.sbml.org/sbml/level3/version1/comp/version1" comp:required="true"'},
            ["package 'comp'"],
        ),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_named(parts, words, tmp_path):
    path = model(tmp_path, **{"species_list": species("X"), **parts})
    with pytest.raises(gde.InputError) as error:
        read_sbml(path)
    for word in ["model.xml", *words]:
        assert word in str(error.value)


def test_no_file_and_no_sbml(tmp_path):
    with pytest.raises(gde.InputError, match="there is none"):
        read_sbml(tmp_path / "missing.xml")
    (tmp_path / "bad.xml").write_text("<sbml>\n<model>")
    with pytest.raises(gde.InputError, match=r"bad.xml, line \d+"):
        read_sbml(tmp_path / "bad.xml")
