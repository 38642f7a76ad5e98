"""Sound chains of staged rows and their receipts, for tests that then damage them."""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.data_plane.digests import CHILD_MODE, ROOT_MODE, StagedRow, as_float32s, cumulative_digest, encode_row, row_digest
from protocol.identity import GymCheckpointEpisode, group_id, model_call_id, rollout_id, sample_id, staging_key
from protocol.ledger.receipts import receipt_of
from protocol.messages import Coordinate, FinalizeGroup, PromptTask, Receipt, SiblingReceipt

TASK = PromptTask(task_id="t0", name="calendar", prompt="book it", tools=(), ground_truth=())
PROMPT = (11, 12, 13)
ORDINAL = 5
GROUP = group_id(0, ORDINAL, 1)


def sealed_again(row: StagedRow, parent_cumulative: str, **changes: Any) -> StagedRow:
    """``row`` with ``changes``, its digests made to fit: damage that no digest shows."""
    changed = msgspec.structs.replace(row, **changes)
    digest = row_digest(changed)
    return msgspec.structs.replace(changed, digest=digest, cumulative=cumulative_digest(parent_cumulative, digest))


def chain_rows(
    generation: int = 0, turns: int = 3, attempts: tuple[int, ...] = (0, 0, 0), prompt: tuple[int, ...] = PROMPT
) -> list[StagedRow]:
    """One episode: turn t generates t + 2 tokens under weight version t; tools answer with 2 tokens."""
    rollout = rollout_id(sample_id(GROUP, generation), 0)
    rows: list[StagedRow] = []
    for turn in range(turns):
        carry = prompt if turn == 0 else (100 + turn, 101 + turn)
        count = turn + 2
        parent = rows[-1] if rows else None
        row = StagedRow(
            v=2,
            key=staging_key(GymCheckpointEpisode(rollout, attempts[turn]).capture_key, model_call_id(turn)),
            rollout_id=rollout,
            attempt=attempts[turn],
            call=model_call_id(turn),
            ordinal=ORDINAL,
            generation=generation,
            turn=turn,
            mode=CHILD_MODE if parent else ROOT_MODE,
            parent=parent.key if parent else "",
            previous_length=parent.previous_length + len(parent.tokens) if parent else 0,
            tokens=carry + tuple(range(200, 200 + count)),
            mask=(0,) * len(carry) + (1,) * count,
            logprobs=as_float32s([0.0] * len(carry) + [-0.1 * (i + 1) for i in range(count)]),
            weight_version=turn,
            digest="",
            cumulative="",
        )
        rows.append(sealed_again(row, parent.cumulative if parent else ""))
    return rows


def coordinate(row: StagedRow) -> Coordinate:
    return Coordinate(row.key, row.digest, row.cumulative, row.weight_version, row.generated)


def receipt(rows: list[StagedRow]) -> Receipt:
    """What the terminal call's attempt was sealed with."""
    key = GymCheckpointEpisode(rows[-1].rollout_id, rows[-1].attempt).capture_key
    return receipt_of(rows[-1].rollout_id, key, tuple(map(coordinate, rows)))


def staged(rows: list[StagedRow]) -> dict[str, bytes]:
    return {row.key: encode_row(row) for row in rows}


def sibling(rows: list[StagedRow], reward: float = 0.5) -> SiblingReceipt:
    generation = rows[0].generation
    return SiblingReceipt(generation, sample_id(GROUP, generation), receipt(rows), reward)


def group_request(chains: list[list[StagedRow]]) -> FinalizeGroup:
    return FinalizeGroup(GROUP, ORDINAL, TASK, tuple(sibling(rows) for rows in chains))
