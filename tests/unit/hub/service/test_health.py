"""A look at the hub is shared by who asks within a moment, and waits for nothing that does not answer."""

import asyncio

from hub.core.limits import Limits
from hub.service.health import Health, Probes


class Asked:
    """A hub that counts how often it is asked, and that answers when it is let."""

    def __init__(self) -> None:
        self.calls = 0
        self.seconds = 0.0
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.problems: list[str] = []

    async def call(self) -> None:
        self.calls += 1
        await self.may_answer.wait()

    async def works(self) -> None:
        """Answer at once."""

    def health(self, limits: Limits | None = None) -> Health:
        probes = Probes(
            call_grpc=self.call,
            run_through_writer=self.works,
            read=self.works,
            loop_problems=lambda: self.problems,
            store_fault=lambda: None,
            disk_free_bytes=lambda: None,
            hub_time_ahead_seconds=lambda: 0.0,
            is_stopping=lambda: False,
        )
        return Health(probes, limits=limits or Limits(), monotonic_seconds=lambda: self.seconds)


async def test_probes_cannot_load_the_hub() -> None:
    asked = Asked()
    health = asked.health()
    for _ in range(100):
        assert (await health.findings()).is_well
    assert asked.calls == 1
    asked.seconds = 1.0
    assert (await health.findings()).is_well
    assert asked.calls == 2


async def test_who_asks_during_a_look_gets_its_result() -> None:
    asked = Asked()
    asked.may_answer.clear()
    health = asked.health()
    asking = [asyncio.create_task(health.findings()) for _ in range(10)]
    await asyncio.sleep(0)
    asking[0].cancel()
    asked.may_answer.set()
    results = await asyncio.gather(*asking, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert {id(result) for result in results[1:]} == {id(health.last)}
    assert asked.calls == 1


async def test_what_changed_is_seen_by_the_next_look_and_not_before() -> None:
    asked = Asked()
    health = asked.health()
    assert health.last is None
    assert (await health.findings()).is_well
    asked.problems = ["alerts is 20 s late, and was last seen 21 s ago"]
    assert (await health.findings()).is_well
    asked.seconds = 1.0
    assert (await health.findings()).problems == tuple(asked.problems)


async def test_what_never_answers_is_not_waited_for() -> None:
    asked = Asked()
    asked.may_answer.clear()
    found = await asked.health(Limits(probe_seconds_max=0.01)).findings()
    assert found.problems == ("gRPC did not answer within 0.01 s",)
