"""Reaction networks from SBML files, read by python-libsbml."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import InputError
from ._expression import TIME, Apply, Environment, Expression, Number, Symbol, evaluate, substitute, symbols
from ._mathml import Function, MathReader
from ._network import ReactionNetwork
from ._reaction import Event, Reaction
from ._reversible import split_rate


def sbml_text(path: str | Path) -> str:
    """An SBML file as text, whatever its encoding."""
    import libsbml

    return libsbml.writeSBMLToString(libsbml.readSBMLFromFile(str(path)))


def read_sbml(path: str | Path) -> ReactionNetwork:
    """The reaction network of an SBML file of any level.

    Counts are amounts, also of species that the model has as concentrations. Compartments are parameters; so are the
    local parameters of a kinetic law, as "reaction.parameter". A reversible reaction becomes two. What the package
    does not have is refused with its name: rate and algebraic rules, fast reactions, delayed values, packages that
    change the mathematics.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: expected an SBML file, and there is none.")
    # Imported here: it is large, and nothing else needs it.
    import libsbml

    document = libsbml.readSBMLFromFile(str(path))
    for i in range(document.getNumErrors()):
        error = document.getError(i)
        if error.getSeverity() >= libsbml.LIBSBML_SEV_ERROR:
            text = " ".join(error.getMessage().split())
            raise InputError(f"{path}, line {error.getLine()}: not valid SBML: {text}")
    model = document.getModel()
    if model is None:
        raise InputError(f"{path}: expected an SBML model, and the file has none.")
    # Before level 3, what libsbml takes for packages are annotations.
    for i in range(document.getNumPlugins() if document.getLevel() >= 3 else 0):
        name = document.getPlugin(i).getPackageName()
        if document.getPackageRequired(name) and name != "l3v2extendedmath":
            raise InputError(f"{path}: the SBML package {name!r}, which this model needs, is not supported.")
    return _Reader(libsbml, model, str(path)).network()


class _Reader:
    def __init__(self, libsbml: Any, model: Any, path: str):
        self.model = model
        self.path = path
        functions: dict[str, Function] = {}
        self.math = MathReader(libsbml, functions, self.refuse)
        for f in _each(model.getNumFunctionDefinitions, model.getFunctionDefinition):
            names = tuple(f.getArgument(i).getName() for i in range(f.getNumArguments()))
            functions[f.getId()] = (names, self.math.read(f.getBody(), f"function {f.getId()!r}"))
        self.sizes = {c.getId(): c for c in _each(model.getNumCompartments, model.getCompartment)}
        self.species = {s.getId(): s for s in _each(model.getNumSpecies, model.getSpecies)}
        self.ruled = {r.getVariable() for r in _each(model.getNumRules, model.getRule) if not r.isAlgebraic()}
        self.assigned = {
            a.getVariable()
            for e in _each(model.getNumEvents, model.getEvent)
            for a in _each(e.getNumEventAssignments, e.getEventAssignment)
        }
        self.rates: dict[str, Expression] = {}
        # A species that is a concentration in formulas is its amount over the size of its compartment.
        self.concentrations = {
            name: Apply("/", (Symbol(name), Symbol(s.getCompartment())))
            for name, s in self.species.items()
            if not self._is_amount(s)
        }

    def refuse(self, what: str, where: str) -> InputError:
        return InputError(f"{self.path}: {where} has {what}, which is not supported.")

    def _is_amount(self, species: Any) -> bool:
        place = self.sizes.get(species.getCompartment())
        if place is None or species.getHasOnlySubstanceUnits():
            return True
        # Where the dimensions are left out, libsbml gives 0 too.
        return place.isSetSpatialDimensions() and place.getSpatialDimensions() == 0

    def formula(self, node: Any, where: str) -> Expression:
        return substitute(self.math.read(node, where), self.concentrations)

    def amount(self, name: str, formula: Expression) -> Expression:
        """What is assigned to a name, as an amount where the name is a concentration."""
        if name not in self.concentrations:
            return formula
        return Apply("*", (formula, Symbol(self.species[name].getCompartment())))

    def network(self) -> ReactionNetwork:
        """The whole model."""
        rules = self._rules()
        start = self._initial_values() | rules
        environment = Environment({TIME.name: 0.0}, start)
        reactions = self._reactions(environment)
        events = self._events()
        start |= self.rates

        def initial(name: str) -> float:
            with np.errstate(all="ignore"):
                return float(environment.read(name, np))

        # Rates of reactions and stoichiometries that formulas name are parameters of the network.
        formulas = [*rules.values(), *(r.rate for r in reactions), *(f for e in events for f in e.formulas())]
        named = {name for f in formulas for name in symbols(f)}
        names = [p.getId() for p in _each(self.model.getNumParameters, self.model.getParameter)] + list(self.sizes)
        names += [name for name in start if name in named and name not in {*names, *self.species}]
        rules = {name: f for name, f in (rules | self.rates).items() if name in names or name in self.species}
        local = {name: value for r in self._laws() for name, value in self._local_values(r).items()}
        return ReactionNetwork(
            {name: initial(name) for name in self.species},
            reactions,
            parameters={name: initial(name) for name in names} | local,
            rules=rules,
            events=events,
            fixed=[n for n, s in self.species.items() if s.getBoundaryCondition() or s.getConstant()],
        )

    # Values and rules

    def _initial_values(self) -> dict[str, Expression]:
        out: dict[str, Expression] = {}
        for name, c in self.sizes.items():
            # Models of one compartment often leave its size out, where amounts are all that counts.
            out[name] = Number(c.getSize() if c.isSetSize() else 1.0)
        for p in _each(self.model.getNumParameters, self.model.getParameter):
            out[p.getId()] = Number(p.getValue() if p.isSetValue() else math.nan)
        for reference, _ in self._references():
            if reference.getId():
                out[reference.getId()] = Number(reference.getStoichiometry() if reference.isSetStoichiometry() else 1.0)
        given = {a.getSymbol(): a for a in _each(self.model.getNumInitialAssignments, self.model.getInitialAssignment)}
        for name, s in self.species.items():
            if s.isSetInitialAmount():
                out[name] = Number(s.getInitialAmount())
            elif s.isSetInitialConcentration():
                out[name] = Apply("*", (Number(s.getInitialConcentration()), Symbol(s.getCompartment())))
            elif name not in given and name not in self.ruled:
                raise InputError(f"{self.path}: species {name!r} has no initial amount. Give it one in the model.")
        for name, assignment in given.items():
            where = f"the initial assignment of {name!r}"
            out[name] = self.amount(name, self.formula(assignment.getMath(), where))
        return out

    def _rules(self) -> dict[str, Expression]:
        out = {}
        for rule in _each(self.model.getNumRules, self.model.getRule):
            if rule.isAlgebraic():
                raise self.refuse("an algebraic rule", "the model")
            name = rule.getVariable()
            if rule.isRate():
                raise self.refuse("a rate rule", repr(name))
            out[name] = self.amount(name, self.formula(rule.getMath(), f"the rule of {name!r}"))
        return out

    # Reactions

    def _laws(self) -> Iterator[Any]:
        return _each(self.model.getNumReactions, self.model.getReaction)

    def _references(self) -> Iterator[tuple[Any, Any]]:
        for r in self._laws():
            for reference in _each(r.getNumReactants, r.getReactant):
                yield reference, r
            for reference in _each(r.getNumProducts, r.getProduct):
                yield reference, r

    def _local_values(self, reaction: Any) -> dict[str, float]:
        law = reaction.getKineticLaw()
        if law is None:
            return {}
        local = list(_each(law.getNumLocalParameters, law.getLocalParameter))
        local = local or list(_each(law.getNumParameters, law.getParameter))
        return {
            f"{reaction.getId()}.{p.getId()}": p.getValue() if p.isSetValue() else math.nan
            for p in local
        }  # fmt: skip

    def _reactions(self, environment: Environment) -> list[Reaction]:
        out = []
        for r in self._laws():
            name = r.getId()
            where = f"reaction {name!r}"
            if r.isSetFast() and r.getFast():
                raise self.refuse("fast=true", where)
            law = r.getKineticLaw()
            if law is None:
                raise self.refuse("no kinetic law", where)
            local = {full.removeprefix(f"{name}."): Symbol(full) for full in self._local_values(r)}
            inner = {n: e for n, e in self.concentrations.items() if n not in local}
            rate = substitute(self.math.read(law.getMath(), where), inner | local)
            reactants = self._side(_each(r.getNumReactants, r.getReactant), environment, where)
            products = self._side(_each(r.getNumProducts, r.getProduct), environment, where)
            modifiers = tuple(dict.fromkeys(m.getSpecies() for m in _each(r.getNumModifiers, r.getModifier)))
            self.rates[name] = rate
            parts = split_rate(rate, set(products)) if r.getReversible() else None
            if parts is None:
                out.append(Reaction(name, reactants, products, rate, modifiers))
            else:
                out.append(Reaction(name, reactants, products, parts[0], modifiers))
                out.append(Reaction(f"{name} (reverse)", products, reactants, parts[1], modifiers))
        return out

    def _side(self, references: Iterator[Any], environment: Environment, where: str) -> dict[str, float]:
        out: dict[str, float] = {}
        for reference in references:
            species, label = reference.getSpecies(), reference.getId()
            if reference.isSetStoichiometryMath():
                formula = self.formula(reference.getStoichiometryMath().getMath(), where)
                if self._varies(symbols(formula), environment):
                    raise self.refuse("a stoichiometry that changes", where)
                count = float(evaluate(formula, environment, np))
            elif label:
                if label in self.assigned or (label in self.ruled and self._varies({label}, environment)):
                    raise self.refuse("a stoichiometry that changes", where)
                count = float(environment.read(label, np))
            else:
                count = reference.getStoichiometry() if reference.isSetStoichiometry() else 1.0
            factor = self.species[species].getConversionFactor() or self.model.getConversionFactor()
            if factor:
                count *= float(environment.read(factor, np))
            if count < 0:
                raise self.refuse(f"a negative stoichiometry of {species!r}", where)
            if count:
                out[species] = out.get(species, 0.0) + count
        return out

    def _varies(self, names: set[str], environment: Environment) -> bool:
        """Whether any of the names may change its value, directly or through rules."""
        todo, seen = list(names), set()
        while todo:
            name = todo.pop()
            if name == TIME.name or name in self.assigned or (name in self.species and name not in self.ruled):
                return True
            if name in self.ruled and name not in seen:
                seen.add(name)
                todo += symbols(environment.rules[name])
        return False

    # Events

    def _events(self) -> list[Event]:
        out = []
        for i, e in enumerate(_each(self.model.getNumEvents, self.model.getEvent)):
            name = e.getId() or f"event {i + 1}"
            where = f"event {name!r}"
            trigger = e.getTrigger()
            if trigger is None or trigger.getMath() is None:
                raise self.refuse("no trigger", where)
            assignments = {
                a.getVariable(): self.amount(a.getVariable(), self.formula(a.getMath(), where))
                for a in _each(e.getNumEventAssignments, e.getEventAssignment)
            }
            delay, priority = e.getDelay(), e.getPriority()
            out.append(
                Event(
                    name,
                    self.formula(trigger.getMath(), where),
                    assignments,
                    delay=None if delay is None else self.formula(delay.getMath(), where),
                    priority=None if priority is None else self.formula(priority.getMath(), where),
                    persistent=trigger.getPersistent() if trigger.isSetPersistent() else True,
                    starts_true=trigger.getInitialValue() if trigger.isSetInitialValue() else True,
                    early_values=e.getUseValuesFromTriggerTime() if e.isSetUseValuesFromTriggerTime() else True,
                )
            )
        return out


def _each(count: Callable[[], int], get: Callable[[int], Any]) -> Iterator[Any]:
    return (get(i) for i in range(count()))
