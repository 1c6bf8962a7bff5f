"""Faults put in on purpose are found: each by its seed, and by the check that is for it."""

from __future__ import annotations

import pytest
from tests.simulation.mutations import MUTATIONS, Mutation, found_by
from tests.simulation.run import simulate


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.name)
def test_a_planted_fault_is_found(mutation: Mutation) -> None:
    error = found_by(mutation, mutation.seed)

    assert error is not None, f"seed {mutation.seed} does not find: {mutation.name}"
    assert str(error).startswith(mutation.finds)


@pytest.mark.parametrize("seed", sorted({each.seed for each in MUTATIONS}))
def test_without_the_fault_its_seed_finds_nothing(seed: int) -> None:
    outcome = simulate(seed)

    assert outcome.error is None, outcome.error
