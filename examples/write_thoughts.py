"""RLP with your model: a thought, its reward and the policy's update."""

import asyncio

from convergence.plugins.learning.rlp import RLPConfig, RLPMixin


class Provider:
    """Mock of your model: any object with `complete`."""

    async def complete(self, prompt: str) -> str:
        """Return the model's text."""
        if "as a probability" in prompt:  # how likely is the outcome?
            return "0.7" if "warm" in prompt else "0.3"
        return "It was warm for days, so it stays warm."


async def main() -> None:
    """Think, reward, learn."""
    rlp = RLPMixin(config=RLPConfig(temperature=0.7), llm_provider=Provider())
    state = {"task": "forecast"}
    for day in range(3):
        thought = await rlp.generate_internal_reasoning(state=state, context={"day": day})
        reward = rlp.information_gain_reward(thought=thought, prediction="rain", outcome="sun")
        state = rlp.update_rlp_policy(thought=thought, reward=await reward, state=state)
        print(thought, state["rlp"]["reward"])


if __name__ == "__main__":
    asyncio.run(main())
