"""The media store outside the job: contents by name, tensors as a processor makes them, faults that outlive a crash."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from toy import ToyFault, toy_world

from protocol.errors import MissingFile
from protocol.external import External, ServiceValue
from protocol.history import AnchorMade, FaultInjected
from protocol.messages import MediaSource
from sim.media import MERGED, PATCH, STORE, FakeMedia, MediaStore, grid, preprocessed
from sim.services import Services
from sim.world import World

SOURCE = MediaSource("image", "a.png", 1, 6)


def test_tensors_have_the_shapes_and_sizes_that_their_names_say() -> None:
    (name, dtype, shape, data), (grid_name, grid_dtype, grid_shape, layout) = preprocessed("image", "a.png", 0, 6)
    assert (name, dtype, shape, len(data)) == ("pixel_values", "float32", (24, PATCH), 24 * PATCH * 4)
    assert (grid_name, grid_dtype, grid_shape, struct.unpack("<3q", layout)) == ("image_grid_thw", "int64", (1, 3), (1, 4, 6))
    values = struct.unpack(f"<{24 * PATCH}f", data)
    assert -1.8 < min(values) < -1.7 and 1.9 < max(values) < 2.0  # 0 and 255, normalised
    pixels, layout_of, seconds = preprocessed("video", "b.mp4", 0, 8)
    assert (pixels[2], struct.unpack("<3q", layout_of[3]), seconds[:3]) == (
        (32, PATCH),
        (2, 4, 4),
        ("second_per_grid_ts", "float32", (1,)),
    )


@pytest.mark.parametrize("tokens", range(1, 13))
def test_a_grid_has_as_many_patches_as_its_placeholders_stand_for(tokens: int) -> None:
    high, wide = grid(tokens * MERGED)
    assert high * wide == tokens * MERGED and high % 2 == wide % 2 == 0


def test_a_sources_bytes_follow_from_its_name_and_how_often_it_was_replaced() -> None:
    assert preprocessed("image", "a.png", 0, 4) == preprocessed("image", "a.png", 0, 4)
    contents = {preprocessed("image", name, content, 4)[0][3] for name in ("a.png", "b.png") for content in (0, 1)}
    assert len(contents) == 4


def test_what_befell_a_source_outlives_the_store() -> None:
    store = MediaStore()
    store.replace("a.png")
    store.remove("b.png")
    again = MediaStore(store.values())
    assert [again.read(name) for name in ("a.png", "b.png", "c.png")] == [1, None, 0]
    assert again.values() == store.values() != ()
    store.replace("*")
    assert [store.read(name) for name in ("a.png", "c.png")] == [2, 1]
    store.remove("*")
    assert store.read("c.png") is None


def test_media_are_part_of_what_survives_a_crash_and_services_are_left_alone() -> None:
    services = Services()
    assert (services.version, services.hold_anything, services.external()) == (0, False, External())
    services.media.replace("a.png")
    assert services.version == 1 and services.hold_anything
    assert services.external() == External((), (ServiceValue(STORE, "replaced/a.png", 1),))
    again = Services((), services.external())
    assert again.held == {} and again.media.read("a.png") == 1


def read(*sources: MediaSource, at_s: float = 0.5) -> Any:
    async def main(rt: Any) -> None:
        rt.record(AnchorMade("now"))
        await rt.sleep(at_s)
        media = FakeMedia(rt, world.media_store())
        try:
            rt.record(AnchorMade(str(len(await media.read(sources)))))
        except MissingFile as error:
            rt.record(AnchorMade(str(error)))

    world: World

    def start(life: int, *faults: ToyFault, external: External | None = None) -> World:
        nonlocal world
        world = toy_world(life=life, controller=main, faults=faults)
        if external is not None:
            world.services = Services((), external)
        assert world.live().outcome == "ended"
        world.bury()
        return world

    return start


def kinds(world: World, kind: type) -> list[Any]:
    return [record.event for record in world.history if isinstance(record.event, kind)]


def fault(verb: str, source: str, life: int = 0) -> ToyFault:
    return ToyFault("controller", "AnchorMade", verb, {"source": source}, life=life)


@pytest.mark.parametrize("name", ["a.png", "*"])
def test_a_fault_of_media_has_taken_effect_once_somebody_has_read_what_it_befell(name: str) -> None:
    world = read(SOURCE)(1, fault("change_media", name))
    assert [event.detail for event in kinds(world, FaultInjected)] == [
        f"armed: source {name}",
        "a.png was read, with other bytes",
    ]
    assert world.faults.effects() == {0: ""}
    world = read(SOURCE)(1, fault("vanish_media", name))
    assert kinds(world, AnchorMade)[-1].anchor == "a.png is not there"
    assert world.faults.effects() == {0: ""}


def test_a_fault_of_a_source_that_nobody_reads_has_no_effect() -> None:
    world = read(SOURCE)(1, fault("change_media", "other.png"))
    assert world.faults.effects() == {0: "nobody read other.png after it"}


def test_a_source_that_vanished_in_one_life_is_not_there_in_the_next() -> None:
    first = read(SOURCE)(1, fault("vanish_media", "a.png", life=1))
    second = read(SOURCE)(2, fault("vanish_media", "a.png", life=1), external=first.services.external())
    assert kinds(second, AnchorMade)[-1].anchor == "a.png is not there"
    assert kinds(second, FaultInjected) == []
