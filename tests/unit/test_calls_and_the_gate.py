"""What waits for a worker's snapshot gate never keeps the checkpoint waiting that has closed it."""

from __future__ import annotations

from typing import Any

from protocol.errors import Cause, Refusal
from protocol.history import ChunksLeft, RowStagedDone, TokensGenerated
from protocol.messages import DURABLE_FAILURE, TERMINAL_COMPLETION, ClearSamples, CutReceipt, Generated, OpenGate
from sim.fake_data_plane import FakeDataPlane
from sim.world import World
from tests.unit.gym_bench import Bench, events, until
from tests.unit.test_calls_asked_again import LONG, PREFIX, asked, cut


class KeepsAll(FakeDataPlane):
    """Refuses the first two requests to delete anything."""

    refused = 0

    async def clear(self, message: ClearSamples) -> None:
        if self.refused < 2:
            self.refused += 1
            raise Refusal("not now", Cause.INFRA)
        await super().clear(message)


def test_a_finished_call_whose_answer_waits_for_the_gate_is_no_completion() -> None:
    found: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        call = rt.call("worker-0", asked(0.0))
        await until(rt, world, TokensGenerated)
        await rt.call("worker-0", cut(asked(0.0), 1))
        await rt.call("worker-0", OpenGate("gym-0", 1))
        await until(rt, world, ChunksLeft)  # its row is staged, its chunk could not be deleted
        await rt.sleep(0.1)  # nor by the clean-up, which tries again in a second
        receipt: CutReceipt = await rt.call("worker-0", cut(asked(0.0), 2))
        found.extend((len(events(world, RowStagedDone)), call.done, receipt.acks[0].kind))
        await rt.call("worker-0", OpenGate("gym-0", 2))
        found.append(await call)

    Bench(LONG, job=PREFIX, data_plane=KeepsAll).run(script)
    staged, answered, kind, generated = found
    assert (staged, answered, kind) == (1, False, DURABLE_FAILURE)
    assert isinstance(generated, Generated) and generated.coordinate.captured


def test_a_finished_call_whose_answer_is_on_its_way_is_a_completion() -> None:
    found: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        call = rt.call("worker-0", asked(0.0))
        await call
        receipt: CutReceipt = await rt.call("worker-0", cut(asked(0.0), 1))
        found.append(receipt.acks[0].kind)

    Bench(LONG, job=PREFIX).run(script)
    assert found == [TERMINAL_COMPLETION]
