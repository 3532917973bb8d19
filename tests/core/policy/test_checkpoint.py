"""Checkpoints of a policy: the same bits again, and refusals."""

import json
from dataclasses import replace

import numpy as np
import pytest

from convergence_core.errors import PolicyCheckpointError
from convergence_core.policy.checkpoint import PolicyIdentity, pack, unpack
from convergence_core.policy.learner import PPOState, improve
from convergence_core.policy.rollout import collect
from tests.support.trained_policies import CONFIG, trained

IDENTITY: PolicyIdentity = ("numbers", ("left", "right"))


def test_a_saved_and_loaded_policy_goes_on_bit_for_bit():
    state, rng, environment = trained(4)
    data = pack(state, CONFIG, IDENTITY, dict(rng.bit_generator.state))
    loaded, config, generator = unpack(data, IDENTITY)
    assert config == CONFIG
    again = np.random.default_rng()
    assert generator is not None
    again.bit_generator.state = generator
    rollout, _ = collect(
        state.networks, environment, environment.offer(), n_steps=32, version=3, rng=rng
    )
    again.bit_generator.state = rng.bit_generator.state
    one, _ = improve(state, rollout, CONFIG, rng)
    two, _ = improve(loaded, rollout, CONFIG, again)
    for name in ("first_moment", "second_moment"):
        assert getattr(one, name).tobytes() == getattr(two, name).tobytes()
    assert one.networks.flat.tobytes() == two.networks.flat.tobytes()
    assert pack(loaded, CONFIG, IDENTITY, generator) == data


def test_a_checkpoint_has_the_layout_of_safetensors():
    state, _, _ = trained(4, n_updates=1)
    data = pack(state, CONFIG, IDENTITY, {})
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert length % 8 == 0
    assert json.loads(header["__metadata__"]["embedding"]) == "numbers"
    assert all(isinstance(one, str) for one in header["__metadata__"].values())
    entry = header["policy.0.weight"]
    start, end = entry["data_offsets"]
    stored = np.frombuffer(data[8 + length :][start:end], dtype="<f4").reshape(entry["shape"])
    assert (stored == state.networks.policy.weights[0]).all()
    assert (
        max(one["data_offsets"][1] for one in header.values() if "shape" in one)
        == len(data) - 8 - length
    )


@pytest.mark.parametrize(
    ("identity", "told"),
    [
        (("words", ("left", "right")), "`words`, but got `numbers`"),
        (("numbers", ("right", "left")), "right, left, but got left"),
    ],
)
def test_a_checkpoint_of_another_embedding_or_other_actions_is_refused_by_name(
    identity: PolicyIdentity, told: str
):
    state, _, _ = trained(4, n_updates=1)
    with pytest.raises(PolicyCheckpointError, match=told):
        unpack(pack(state, CONFIG, IDENTITY, {}), identity)


def test_a_damaged_checkpoint_is_refused_wherever_it_is_cut():
    state = PPOState.begin(replace(CONFIG, hidden_dim=4), np.random.default_rng(0))
    data = pack(state, replace(CONFIG, hidden_dim=4), IDENTITY, {})
    rng = np.random.default_rng(0)
    for place in [0, 3, 8, 9, len(data) - 1, *rng.integers(len(data), size=60)]:
        with pytest.raises(PolicyCheckpointError):
            unpack(data[:place], IDENTITY)
    nan = bytearray(data)
    nan[-4:] = np.float32(np.nan).tobytes()
    with pytest.raises(PolicyCheckpointError, match="not finite"):
        unpack(bytes(nan), IDENTITY)
