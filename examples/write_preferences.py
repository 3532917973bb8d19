"""SAO with your model: prompts, answer pairs, judgements and a file of rows."""

import asyncio
import warnings

from convergence.plugins.learning.sao import SAOConfig, SAOMixin


class Provider:
    """Mock of your model that writes, answers, and judges by the number of steps."""

    n = 0

    def complete(self, prompt: str) -> str:
        """Return the model's text."""
        self.n += 1
        if "The persona:" in prompt:
            return f"User prompt: How do I return parcel {self.n}, bought in week {self.n * 7}?"
        if prompt.endswith("Letter:"):
            first, second = (part.count("step") for part in prompt.split("[[BEGIN ANSWER B"))
            return "A" if first > second else "B"
        steps = " step" * (self.n % 5)
        return f"Answer {self.n}: go to shop {self.n * 3}, show receipt {self.n * 5},{steps} and wait."


async def main() -> None:
    """Write rows and export them, although no audit has approved the judge yet."""
    sao = SAOMixin(config=SAOConfig(n_personas=100, batch_size=1), llm_provider=Provider())
    rows = await sao.generate_synthetic_dataset(n_samples=6)
    print(f"{len(rows)} of {len(rows.pairs)} pairs were kept; the first: {rows[0]['prompt']}")
    warnings.simplefilter("ignore", UserWarning)
    sao.export_dataset("training_data.jsonl", format="jsonl")


if __name__ == "__main__":
    asyncio.run(main())
