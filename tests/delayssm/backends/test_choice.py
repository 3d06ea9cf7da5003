"""Which backend runs, and for how long."""

import pytest

import delayssm
from delayssm import backends
from delayssm.backends import choice


def test_a_backend_for_a_block_only() -> None:
    before = delayssm.backend()
    with delayssm.backend("eager") as name:
        assert name == delayssm.backend() == choice("cpu") == "eager"
        with delayssm.backend("numba"):
            assert choice("cpu") == "numba"
        assert choice("cpu") == "eager"
    assert delayssm.backend() == before


def test_the_backend_is_restored_after_an_exception() -> None:
    before = delayssm.backend()
    with pytest.raises(KeyError), delayssm.backend("eager"):
        raise KeyError
    assert delayssm.backend() == before
    with pytest.raises(ValueError, match="no backend is called 'fast'"), delayssm.backend("fast"):
        pass
    assert delayssm.backend() == before


def test_leaving_a_block_also_restores_that_none_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_asked", None)
    with delayssm.backend("eager"):
        assert choice("cpu") == "eager"
    assert backends._asked is None
    assert choice("cpu") == "numba"


def test_a_backend_for_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_asked", None)
    assert delayssm.backend("eager") == "eager"
    assert delayssm.backend() == "eager"
