"""Client of the service whose policy changes prompts.

::

    with PolicyClient("http://127.0.0.1:8765", token_env="APP_TOKEN") as client:
        result = client.train(["Answer the question."], score=my_score, episodes=40)
"""

from convergence.policy.client import EpisodeResult, PolicyClient, PolicyTraining
from tasks.policy.records import ChosenAction, MutatedAction

__all__ = [
    "ChosenAction",
    "EpisodeResult",
    "MutatedAction",
    "PolicyClient",
    "PolicyTraining",
]
