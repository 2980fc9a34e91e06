"""The cases in one of the Python drivers: `main.py <driver>`, a request a line, an answer a line (see ../README.md).

A module of `drivers/` has a class `Driver` for one url. `transaction`, `nested` and `alone` (no transaction) are
context managers, inside which `write`, `expect`, `complete` and `execute` are called; with `is_async` they are
asynchronous ones, and coroutines.
"""

import asyncio
import importlib
import inspect
import json
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

ENQUEUE = "select * from awa.insert_job('conformance-follow-up', '{}', 'other')"
IMMEDIATE = "set constraints all immediate"


class Application(Exception):
    """The application's own error."""


def say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def pause() -> None:
    say({"paused": True})
    sys.stdin.readline()


def progress_of(step: dict[str, Any]) -> str | None:
    text = step.get("progress")
    # more than 64 KiB, of which little is left to compress
    return json.dumps({"text": secrets.token_urlsafe(150_000)}) if text == "oversized" else text


async def value_of(given: Any) -> Any:
    return await given if inspect.isawaitable(given) else given


@asynccontextmanager
async def entered(block: Any) -> AsyncIterator[Any]:
    """`with`, or `async with`, as the driver has it."""
    if hasattr(block, "__aenter__"):
        async with block as inside:
            yield inside
    else:
        with block as inside:
            yield inside


async def run_step(driver: Any, tx: Any, step: dict[str, Any], attempt: dict[str, Any], completions: list[Any]) -> None:
    match step["do"]:
        case "write":
            await value_of(driver.write(tx, attempt["tag"]))
        case "expect":
            await value_of(driver.expect(tx, attempt["token"]))
        case "complete":
            completions += await value_of(driver.complete(tx, attempt["token"], progress_of(step)))
        case "enqueue":
            await value_of(driver.execute(tx, ENQUEUE))
        case "immediate":
            await value_of(driver.execute(tx, IMMEDIATE))
        case "raise":
            raise Application("the application's own error")
        case "pause":
            pause()
        case "nested":
            async with entered(driver.nested(tx)) as inner:
                await run_steps(driver, inner, step["steps"], attempt, completions)
        case other:
            raise NotImplementedError(other)


async def run_steps(
    driver: Any, tx: Any, steps: list[dict[str, Any]], attempt: dict[str, Any], completions: list[Any]
) -> None:
    for step in steps:
        try:
            await run_step(driver, tx, step, attempt, completions)
        except Exception:
            if not step.get("swallow"):
                raise


async def run_attempt(driver: Any, request: dict[str, Any], attempt: dict[str, Any]) -> dict[str, Any]:
    isolation = request["transaction"]
    completions: list[tuple[Any, Any]] = []
    result: dict[str, Any] = {"end": "committed"}
    try:
        async with entered(driver.alone() if isolation is None else driver.transaction(isolation)) as tx:
            await run_steps(driver, tx, request["steps"], attempt, completions)
    except Application as error:
        result = {"end": "application", "message": str(error)}
    except Exception as error:
        result = {"end": driver.sqlstate(error) or "none", "message": repr(error)}
    rows = [{"job_id": str(job_id), "outcome": str(outcome)} for job_id, outcome in completions]
    return {**result, "completions": rows}


async def answer(driver: Any, request: dict[str, Any]) -> dict[str, Any]:
    await value_of(driver.connect())
    began = time.perf_counter()
    results = [await run_attempt(driver, request, attempt) for attempt in request["attempts"]]
    return {"results": results, "micros": (time.perf_counter() - began) * 1e6}


def without_loop(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The interpreter over a blocking driver awaits nothing, and Django refuses to work where an event loop runs."""
    try:
        coroutine.send(None)
    except StopIteration as finished:
        return finished.value
    raise RuntimeError("a blocking driver awaited something")


def main(name: str) -> None:
    make = importlib.import_module(f"drivers.{name.replace('-', '_')}").Driver
    with asyncio.Runner() as runner:
        run: Callable[[Coroutine[Any, Any, Any]], Any] = runner.run if make.is_async else without_loop
        driver, url = None, None
        for line in iter(sys.stdin.readline, ""):
            request = json.loads(line)
            if driver is None or url != request["url"]:
                if driver is not None:
                    run(value_of(driver.close()))
                url = request["url"]
                driver = make(url)
            say(run(answer(driver, request)))


main(sys.argv[1])
