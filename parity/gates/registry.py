"""Every gate, in the order in which they are printed. A gate that is not named here judges nothing."""

from __future__ import annotations

from collections.abc import Callable

from parity.gate import Comparison, GateResult
from parity.gates import (
    bit_identical,
    exactly_once,
    generation_logprobs,
    masks_and_lengths,
    media,
    other_weights,
    own_history,
    provenance,
    readiness_order,
    restored_prefixes,
    rewards_and_admission,
    route_digests,
    sound_rows,
    spearman,
    staging_leaks,
    token_ids,
    training_error,
    training_numbers,
    weights,
    what_was_trained,
)

Gate = Callable[[Comparison], GateResult]

GATES: tuple[tuple[str, Gate], ...] = (
    (what_was_trained.NAME, what_was_trained.what_was_trained),
    (exactly_once.NAME, exactly_once.exactly_once),
    (token_ids.NAME, token_ids.token_ids),
    (restored_prefixes.NAME, restored_prefixes.restored_prefixes),
    (masks_and_lengths.NAME, masks_and_lengths.masks_and_lengths),
    (rewards_and_admission.NAME, rewards_and_admission.rewards_and_admission),
    (other_weights.NAME, other_weights.other_weights),
    (provenance.NAME, provenance.provenance),
    (sound_rows.NAME, sound_rows.sound_rows),
    (own_history.NAME, own_history.own_history),
    (generation_logprobs.NAME, generation_logprobs.generation_logprobs),
    (bit_identical.NAME, bit_identical.bit_identical),
    (spearman.NAME, spearman.spearman),
    (training_numbers.NAME, training_numbers.training_numbers),
    (training_error.NAME, training_error.training_error),
    (weights.NAME, weights.weights),
    (route_digests.NAME, route_digests.route_digests),
    (media.NAME, media.media),
    (staging_leaks.NAME, staging_leaks.staging_leaks),
    (readiness_order.NAME, readiness_order.readiness_order),
)
