"""Options of methods that fit() itself once had: they work, and a warning says what to write."""

import pytest

import avem
from avem.inference.methods.names import METHODS, as_method, check_names, method_with, take_options


@pytest.mark.parametrize(
    ("method", "refine", "old", "words"),
    [
        ("adaptive", "auto", {"n_nodes": 9}, "write method=avem.Adaptive(n_nodes=9)."),
        ("avem", "auto", {"n_nodes": 9}, "write refine=avem.Adaptive(n_nodes=9)."),
        ("avem", None, {"q_update": "quadrature"}, "method=avem.AVEM(q_update='quadrature')."),
        ("avem", "auto", {"batch_size": 20}, "write method=avem.AVEM(batch_size=20)."),
        (
            "partial",
            "adaptive",
            {"unanchored": "a", "n_nodes": 5},
            "write method=avem.Partial(unanchored=('a',), n_nodes=5), "
            "refine=avem.Adaptive(n_nodes=5).",
        ),
        (
            "monte_carlo",
            "auto",
            {"n_draws": 64, "fresh_draws": True},
            "write method=avem.MonteCarlo(n_draws=64, fresh_draws=True).",
        ),
        (avem.AVEM(anchor="optimal"), None, {"anchor": "mean"}, "method=avem.AVEM"),
    ],
)
def test_the_warning_says_what_to_write(method, refine, old, words):
    with pytest.warns(avem.AvemWarning, match="belong into it") as seen:
        made, finer, if_needed = take_options(method, refine, old)
    (warning,) = seen
    assert words in str(warning.message)
    for name, value in old.items():
        holder = made if name in made.options() else finer
        expected = ("a",) if name == "unanchored" else value
        assert getattr(holder, name) == expected
    assert if_needed == (refine == "auto")


def test_words_and_objects_are_one():
    for word in METHODS:
        made = as_method(word)
        assert made.word == word
        assert type(made)(**made.options()) == made
        assert as_method(made) is made
    assert method_with("avem", {"q_update": "quadrature"}) == avem.AVEM("quadrature")
    with pytest.raises(avem.ModelError, match="q_update is for the methods avem, partial"):
        method_with("adaptive", {"q_update": "quadrature"})
    with pytest.raises(TypeError, match="unexpected keyword argument 'n_node'"):
        check_names({"n_node": 9}, ["data", "n_starts"])


def test_fit_takes_them_and_points_at_the_line_that_gives_them():
    hmm = avem.MixedHMM("y ~ 1 + (1 | who)", 1)
    truth = {"initial": [1.0], "transition": [[1.0]], "coef": [[[0.0]]], "variance": [[1.0]]}
    frame = hmm.simulate(truth | {"effect_covariance": [[1.0]]}, 6, 5, seed=0).frame
    with pytest.warns(avem.AvemWarning, match="belong into it") as seen:
        old = hmm.fit(frame, method="quadrature", n_nodes=11)
    assert seen[0].filename == __file__
    new = hmm.fit(frame, method=avem.Quadrature(11))
    assert old.bound == new.bound
    assert old.info.n_nodes == new.info.n_nodes == 11
