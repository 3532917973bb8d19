"""Pydantic AI agent with validated output, as a target."""

import os
from typing import Literal

import openai
from pydantic_ai import Agent, ModelSettings, UnexpectedModelBehavior
from pydantic_ai.exceptions import (
    ModelConnectionError,
    ModelRateLimitError,
    ModelServerError,
    ModelUnavailableError,
)
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

PROVIDER = OpenAIProvider(
    openai_client=openai.AsyncOpenAI(
        base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8765/v1"),
        api_key=os.environ.get("OPENAI_API_KEY", "none"),
        max_retries=0,  # the optimizer retries, within its limits
    )
)
FAULTS = (ModelConnectionError, ModelRateLimitError, ModelServerError, ModelUnavailableError)


async def answer(question, *, model, temperature, retries, instructions):
    """Return the agent's topic."""
    agent = Agent(
        OpenAIChatModel(model, provider=PROVIDER),
        instructions=instructions,
        output_type=Literal["tracking", "payment", "return", "hours"],
        model_settings=ModelSettings(temperature=temperature),
        retries=retries,
    )
    try:
        run = await agent.run(question)
    except UnexpectedModelBehavior as error:
        return {"success": False, "error": str(error)}
    except FAULTS as error:
        raise ConnectionError(str(error)) from error  # not the candidate's fault: retried
    usage = run.usage
    return {
        "result": run.output,
        "tokens_in": usage.input_tokens,
        "tokens_out": usage.output_tokens,
    }
