"""How programs are compiled."""

from avem.numerics import jit


def test_flags_of_the_user_go_first(monkeypatch):
    monkeypatch.setattr(jit, "version", lambda name: "0.10.2")
    monkeypatch.setattr(jit, "_QUICK", {"xla_one": False, "xla_two": 1})
    monkeypatch.setenv("XLA_FLAGS", "--xla_other=3 --xla_two=0")
    assert jit._options() == {"xla_one": False}
    monkeypatch.delenv("XLA_FLAGS")
    assert jit._options() == {"xla_one": False, "xla_two": 1}
    monkeypatch.setattr(jit, "version", lambda name: "0.11.0")
    assert jit._options() is None  # an option that an XLA does not know is an error
