"""What a trainer says of its rows: calls, keys that were alive, routes whose order says nothing."""

from __future__ import annotations

import struct

import msgspec
from chain_samples import GROUP, ORDINAL, chain_rows

from protocol.data_plane.advantages import advantages
from protocol.data_plane.chain import linearise
from protocol.data_plane.extras import RouteBlock
from protocol.data_plane.routes import placeholder, with_sorted_experts
from protocol.data_plane.rows import CanonicalRow
from protocol.data_plane.training_rows import TrainingRow, rows_bytes, trained_places, training_rows
from protocol.identity import epoch_of_group, sample_id


def row(routes: RouteBlock | None = None, reward: float = 0.5) -> CanonicalRow:
    found = linearise(sample_id(GROUP, 0), GROUP, chain_rows(0), reward)
    return msgspec.structs.replace(found, routes=routes)


def told(of: CanonicalRow, staged: tuple[str, ...] | None = ()) -> TrainingRow:
    logprobs = [[-1.0] * len(trained_places(of))]
    (found,) = training_rows(3, 2, [of], logprobs, advantages([of], 1e-6), {GROUP: 1}, staged)
    return found


def test_calls_are_what_each_carried_and_generated() -> None:
    of = row()
    found = told(of)
    assert sum(carried + generated for carried, generated in found.calls) == len(of.tokens)
    assert [generated for _, generated in found.calls] == [count for _, count in of.spans]
    assert (found.life, found.step, found.chunk, found.ordinal, found.epoch) == (3, 2, 1, ORDINAL, epoch_of_group(GROUP))


def test_rows_of_earlier_attempts_and_chunks_of_its_sample_are_alive() -> None:
    of = row()
    earlier, beside = f"{of.sample}r0-a0/c0/p0", f"{sample_id(GROUP, 1)}r0-a0/c0"
    assert told(of, (earlier, beside)).staging_alive == (earlier,)
    assert told(of, (f"{of.keys[0]}/p0", of.keys[0])).staging_alive == (f"{of.keys[0]}/p0", of.keys[0])
    assert told(of, None).staging_alive is None


def block(*ids: tuple[int, ...], top_k: int = 2) -> RouteBlock:
    flat = [one for each in ids for one in each]
    return RouteBlock("int16", len(ids[0]) // top_k, top_k, struct.pack(f"<{len(flat)}h", *flat))


def test_experts_are_sorted_within_a_layer_and_nowhere_else() -> None:
    one, other = block((3, 1, 7, 9)), block((1, 3, 9, 7))
    assert with_sorted_experts(one) == with_sorted_experts(other) == block((1, 3, 7, 9)) != block((1, 7, 3, 9))
    missing = RouteBlock("int16", 2, 2, placeholder(one))
    assert with_sorted_experts(missing) == missing


def test_the_order_within_top_k_changes_the_digest_as_it_is_alone() -> None:
    count = len(row().tokens)
    one, other = (told(row(block(*[ids] * count))) for ids in ((3, 1, 7, 9), (1, 3, 9, 7)))
    assert one.routes != other.routes and one.routes_sorted == other.routes_sorted
    assert len(one.routes_sorted) == len(one.keys)


def test_a_line_reads_back_as_the_row_it_was() -> None:
    found = told(row())
    assert msgspec.json.decode(rows_bytes([found]), type=TrainingRow) == found
    assert epoch_of_group("e12p40i3") == 12 and epoch_of_group("4f0c") == -1
