"""OpenAI Agents SDK agent as a target, with instructions, settings and tool use as parameters."""

import os

import openai
from agents import (
    Agent,
    MaxTurnsExceeded,
    ModelSettings,
    OpenAIChatCompletionsModel,
    Runner,
    ToolCallItem,
    function_tool,
    set_tracing_disabled,
)

set_tracing_disabled(True)  # otherwise the SDK reports each run to OpenAI
CLIENT = openai.AsyncOpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8765/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "none"),
    max_retries=0,  # the optimizer retries, within its limits
)


@function_tool
def opening_hours(day: str) -> str:
    """Return the shop's hours on a day."""
    return "closed" if day.lower().startswith("sun") else "9 to 18"


async def answer(question, *, model, temperature, tool_choice, max_turns, instructions):
    """Return the agent's topic and its tool calls."""
    agent = Agent(
        name="topics",
        instructions=instructions,
        model=OpenAIChatCompletionsModel(model, CLIENT),
        model_settings=ModelSettings(temperature=temperature, tool_choice=tool_choice),
        tools=[opening_hours],
    )
    try:
        run = await Runner.run(agent, question, max_turns=max_turns)
    except MaxTurnsExceeded:
        return {"success": False, "error": "too many turns"}
    except (openai.APIConnectionError, openai.RateLimitError, openai.InternalServerError) as error:
        raise ConnectionError(str(error)) from error  # not the candidate's fault: retried
    calls = [item.raw_item for item in run.new_items if isinstance(item, ToolCallItem)]
    usage = run.context_wrapper.usage
    return {
        "result": {
            "topic": run.final_output.strip(" .").lower(),
            "tool_calls": [{"name": one.name, "arguments": one.arguments} for one in calls],
        },
        "tokens_in": usage.input_tokens,
        "tokens_out": usage.output_tokens,
    }
