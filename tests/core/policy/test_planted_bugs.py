"""Probes that only right code learns, and planted bugs that each must be caught."""

import pytest

from tests.support.policy_probes import PROBES


@pytest.mark.parametrize("name", PROBES)
def test_probe_is_learned(name: str):
    PROBES[name]()
