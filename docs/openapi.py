"""OpenAPI document of the service with a policy at its root, for generated clients.

python -m docs.openapi > build/openapi.json
"""

import json
import sys
import tempfile
from pathlib import Path

from convergence.service.app import make_app
from convergence.service.metrics import Metrics
from convergence.service.policy import PolicyMount
from convergence_core.policy.prompt_state import N_PROGRESS, PROMPT_ACTIONS
from convergence_core.policy.settings import PPOConfig
from tasks.policy.prompt_mutator import PromptMutator
from tasks.policy.records import PolicySettings
from tasks.policy.served_policy import ServedPolicy
from tasks.serving.committer import Committer
from tasks.serving.systems import Systems
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.policy.experience_store import ExperienceStore
from tasks.store.runtime.runtime_store import RuntimeStore


def document() -> str:
    """Return the document as JSON. Its version is 0, so that only changes of paths change it."""
    config = PPOConfig(input_dim=1 + N_PROGRESS, action_dim=len(PROMPT_ACTIONS), hidden_dim=2)
    settings = PolicySettings.of("given", 1, ppo=config)
    with (
        tempfile.TemporaryDirectory() as folder,
        RuntimeStore(Path(folder) / "store") as runtime,
        FeedbackStore(runtime.root) as feedback,
        ExperienceStore(runtime.root) as experiences,
        ServedPolicy(experiences, settings) as policy,
    ):
        committer = Committer(runtime, most_waiting=1)
        try:
            app = make_app(
                Systems(runtime),
                committer,
                Metrics(lambda: 0, lambda: 0),
                feedback,
                version="0",
                has_docs=True,
                policy=PolicyMount(policy=policy, mutator=PromptMutator()),
            )
            return json.dumps(app.openapi(), indent=1, sort_keys=True) + "\n"
        finally:
            committer.close()


if __name__ == "__main__":
    sys.stdout.write(document())
