"""How programs are compiled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from avem.numerics import arrays, jit

QUICK, KNOWN = {"xla_one": False, "xla_two": 1}, ("0.10.",)


def test_flags_of_the_user_go_first(monkeypatch):
    monkeypatch.setattr(jit, "version", lambda name: "0.10.2")
    monkeypatch.setenv("XLA_FLAGS", "--xla_other=3 --xla_two=0")
    assert jit._allowed(QUICK, KNOWN) == {"xla_one": False}
    monkeypatch.delenv("XLA_FLAGS")
    assert jit._allowed(QUICK, KNOWN) == QUICK
    monkeypatch.setattr(jit, "version", lambda name: "0.11.0")
    assert jit._allowed(QUICK, KNOWN) is None  # an option that an XLA does not know is an error


def test_options_for_gpus_are_known_to_this_xla():
    options = jit._allowed(jit._SMALL_ON_GPU, jit._KNOWN_TO_GPUS)
    if options is None:
        pytest.skip("another XLA: compiled as it comes")
    assert jax.jit(lambda x: x + 1, compiler_options=options)(1) == 2


def test_small_work_on_subjects_is_part_of_other_small_work(monkeypatch):
    @arrays.per_subject
    def inner(xp, x):
        return xp.sqrt(x)

    @arrays.per_subject
    def outer(xp, x):
        return inner(x) + 1

    x = np.array([4.0, 9.0])
    np.testing.assert_array_equal(outer(x), [3, 4])
    monkeypatch.setattr(arrays, "in_numpy", lambda: False)
    np.testing.assert_array_equal(outer(jnp.asarray(x)), [3, 4])
