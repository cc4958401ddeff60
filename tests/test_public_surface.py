"""Every public callable says what it takes and gives, with types and an example that is run."""

import inspect
import re
import sys
import warnings
from pathlib import Path
from typing import get_args

import pytest

import avem
import avem.sklearn
from avem._moved import MOVED
from avem.families import FAMILIES, FamilyWord
from avem.inference.methods.names import METHODS, MethodWord

ROOT = Path(__file__).parents[1]
SECTION = re.compile(r"^(\w[\w ]*)\n-+$", re.MULTILINE)
ITEM = re.compile(r"^(\*{0,2}\w[\w, *]*?)( : .+)?$")
HOOKS = {  # avem calls these with objects of its own: nobody could run an example of them
    "Method.bind",
    "Method.decided",
    "Method.iterate",
}


def public_classes():
    found = [getattr(avem, name) for name in avem.__all__]
    found += [getattr(avem.sklearn, name) for name in avem.sklearn.__all__]
    found += [avem.families.Family, avem.families.Univariate]
    return [thing for thing in found if inspect.isclass(thing)]


def public_functions():
    """(name, function) once each: a method where a public class first declares it.

    Classes that override it need not repeat what is said there.
    """
    found = {
        name: getattr(avem, name)
        for name in avem.__all__
        if not inspect.isclass(getattr(avem, name))
    }
    found["families.register"] = avem.families.register
    classes = public_classes()
    for kind in classes:
        for name in dir(kind):
            if name.startswith("_"):
                continue
            bases = [base for base in kind.__mro__ if name in vars(base)]
            declared = ([base for base in bases if base in classes] or bases)[-1]
            member = getattr(declared, name)
            is_function = inspect.isfunction(member) or inspect.ismethod(member)
            if is_function and member.__module__.startswith("avem."):
                found[f"{declared.__name__}.{name}"] = member
    return sorted(found.items())


def sections(text):
    """The text of each section of a docstring, by title."""
    parts = SECTION.split(inspect.cleandoc(text or ""))
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def described(text):
    """The names of a section's entries, and those of them that have no type."""
    names, untyped = set(), set()
    for line in (text or "").splitlines():
        item = ITEM.match(line)
        if item:
            entry = {name.strip() for name in item[1].split(",")}
            names |= entry
            untyped |= set() if item[2] else entry
    return names, untyped


def parameters(function):
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in ("self", "cls"):
            yield stars.get(parameter.kind, "") + name


FUNCTIONS = dict(public_functions())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_says_what_it_takes_and_gives(name):
    function = FUNCTIONS[name]
    said = sections(function.__doc__)
    names, untyped = described(said.get("Parameters"))
    wanted = set(parameters(function))
    assert not wanted - names, f"{name}: not described"
    assert not names - wanted, f"{name}: no such parameter"
    assert not untyped - {n for n in names if n.startswith("*")}, f"{name}: of which type?"
    returned = inspect.signature(function).return_annotation
    assert ("Returns" in said) == (returned not in (None, "None")), f"{name}: what is returned?"
    if name not in HOOKS:
        assert ">>> " in said.get("Examples", ""), f"{name}: no example"


@pytest.mark.parametrize("kind", public_classes(), ids=lambda kind: kind.__name__)
def test_a_class_says_what_it_is_made_of(kind):
    said = sections(kind.__doc__)
    names, untyped = described(said.get("Parameters", "") + said.get("Attributes", ""))
    assert not untyped, f"{kind.__name__}: of which type?"
    if issubclass(kind, Exception) or kind is avem.Stop:
        wanted = set()
    elif inspect.isabstract(kind):
        wanted = {name for name in vars(kind).get("__annotations__", ()) if name in names}
    elif issubclass(kind, tuple):
        wanted = set(kind._fields)
    elif issubclass(kind, float) or kind.__init__ is object.__init__:
        wanted = {name for name in vars(kind).get("__annotations__", ()) if name[0] != "_"}
    else:
        wanted = set(parameters(kind.__init__))
    inherited = {
        name
        for base in kind.__mro__[1:]
        for name in described(sections(base.__doc__).get("Attributes"))[0]
    }
    assert not wanted - names - inherited, f"{kind.__name__}: not described"
    if not inspect.isabstract(kind):
        assert ">>> " in said.get("Examples", ""), f"{kind.__name__}: no example"


def test_the_package_shows_its_own_names_and_nothing_else():
    assert dir(avem) == sorted([*avem.__all__, "__version__", "families", "priors"])
    for name in avem.__all__:
        thing = getattr(avem, name)
        assert thing.__name__ == name
        assert thing.__module__.startswith("avem.")


def test_what_public_functions_return_is_public():
    """Result classes can be named; hooks of methods and families give parts of the engine."""
    known = {*avem.__all__, *avem.sklearn.__all__, *avem.families.__all__}
    engine = {"Alone", "Drawn", "EStep", "Etas", "Mean", "Run", "Table", "Transitions"}
    for name, function in FUNCTIONS.items():
        for word in re.findall(r"\b[A-Z]\w+", str(inspect.signature(function).return_annotation)):
            ours = getattr(inspect.getmodule(function), word, None)
            if getattr(ours, "__module__", "").startswith("avem."):
                assert word in known | engine, f"{name} gives a {word}"


def test_words_of_methods_are_typed():
    assert set(get_args(MethodWord)) == set(METHODS)
    assert [word for word in FAMILIES if FAMILIES[word].__module__.startswith("avem.")] == list(
        get_args(FamilyWord)
    )


@pytest.mark.parametrize("former", MOVED)
def test_former_places_still_have_their_names(former):
    for name, home in MOVED[former].items():
        scope = {}
        with pytest.warns(DeprecationWarning, match=f"write `from {home} import {name}`"):
            exec(f"from {former} import {name}", scope)
        if home == "avem":
            assert scope[name] is getattr(avem, name)


def test_former_places_have_nothing_else_and_warn_only_when_used():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        import avem.results.plots  # pyright: ignore[reportMissingImports]
    with pytest.raises(AttributeError, match=r"'avem\.results\.plots' has no attribute 'numpy'"):
        avem.results.plots.numpy  # noqa: B018
    with pytest.raises(ModuleNotFoundError):
        import avem.results.nothing  # pyright: ignore[reportMissingImports]


def test_former_places_are_found_where_only_they_are_imported(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[:2] == ["avem", "results"]]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.warns(DeprecationWarning, match="write `from avem import FitInfo`"):
        from avem.results.info import FitInfo  # pyright: ignore[reportMissingImports]
    assert FitInfo.__module__ == "avem.fits.info"
