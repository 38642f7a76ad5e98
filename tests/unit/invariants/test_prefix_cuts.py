"""I46, I47, I48, I50, RECEIPT-1, CUT-1: what a cut takes, what it leaves, and what is said of it."""

from __future__ import annotations

import pytest
from ledger_files import judged, pack
from prefix_files import (
    CALL,
    CHECKPOINT,
    KEY,
    SOURCE,
    acknowledged,
    asked,
    chunk,
    chunks,
    evidence,
    prefix_terms,
    saved,
    staged,
)

from invariants.prefix.a_failed_cut_leaves_nothing import AFailedCutLeavesNothing
from invariants.prefix.a_receipt_answers_its_inventory import AReceiptAnswersItsInventory
from invariants.prefix.acknowledged_cuts_are_saved import AcknowledgedCutsAreSaved
from invariants.prefix.frozen_tokens_are_complete import FrozenTokensAreComplete
from invariants.prefix.one_call_fails_alone import OneCallFailsAlone
from invariants.prefix.uncuttable_calls_are_never_cut import UncuttableCallsAreNeverCut
from protocol.data_plane.chunks import encode_chunk
from protocol.history import (
    CallAsked,
    CallBegun,
    CallEnded,
    CallFrozen,
    ChunkIssued,
    ChunksDiscarded,
    CutAcknowledged,
    CutAnswered,
    CutAsked,
    CutRolledBack,
    CutSaved,
    CutSealed,
    EngineFound,
    EngineStarted,
    EpisodeAdmitted,
    EpisodeCut,
    EpisodeExported,
    FaultInjected,
    GateClosed,
    GymPhaseStarted,
    ManifestBuilt,
    MediaCompared,
    PrefixRestored,
    ReceiptSent,
    RoutesAssembled,
    RowStagedDone,
    SnapshotPublished,
    TokensGenerated,
    key_set,
)

TERMS = prefix_terms()
ROWS = chunks(2, 4)
ASK = ("gym-0", CutAsked("worker-0", CHECKPOINT, 1, (CALL,), "i", 5.0))
CLOSED = GateClosed("gym-0", 1, CHECKPOINT)
SENT = ReceiptSent(CHECKPOINT, "i", 1, False)


def at_worker(*events):
    return [event if isinstance(event, tuple) else ("worker-0", event) for event in events]


def found(kind, *events, given=TERMS, start=None, life=1):
    return judged(kind, *at_worker(*events), given=given, start=start, life=life)


def frozen(count=2, staged=0, inherited=0, published=(2, 2, -1), limit=8, finish=""):
    return CallFrozen(CALL, CHECKPOINT, count, staged, inherited, published, limit, finish)


def failed(reason="put failed: lost"):
    return CutAcknowledged(CALL, CHECKPOINT, "durable_failure", reason)


# --- I46


def test_a_freeze_of_what_is_published_whole_is_held():
    assert found(FrozenTokensAreComplete, frozen(published=(4, 2, -1)), staged(ROWS[0])) == []
    replay = prefix_terms(router_replay={"enabled": True})
    assert found(FrozenTokensAreComplete, frozen(published=(4, 3, 2)), staged(ROWS[0], route_rows=4), given=replay) == []
    finished = frozen(count=4, published=(4, 4, 3), finish="stop")
    assert found(FrozenTokensAreComplete, finished, given=replay) == []


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (frozen(count=3, published=(3, 2, -1)), "is frozen at 3 tokens; it has 3 and 2 logprobs."),
        (frozen(count=3, published=(4, 4, -1), finish="stop"), "has finished with 4 tokens, and is frozen at 3."),
        (frozen(count=0, published=(0, 0, -1)), "is frozen at 0 tokens; 0 are staged, 0 restored."),
        (frozen(count=2, staged=3), "is frozen at 2 tokens; 3 are staged"),
        (frozen(count=2, staged=1, inherited=2), "1 are staged, 2 restored."),
    ],
)
def test_a_freeze_of_a_token_that_lacks_something_breaks_I46(event, text):
    lines = found(FrozenTokensAreComplete, event)
    assert text in lines[0] and len(lines) == 1


def test_a_frozen_token_without_its_route_row_breaks_I46():
    replay = prefix_terms(router_replay={"enabled": True})
    assert "it has 1 route rows" in found(FrozenTokensAreComplete, frozen(published=(2, 2, 1)), given=replay)[0]
    assert "holds no route rows" in found(FrozenTokensAreComplete, frozen(), staged(ROWS[0]), given=replay)[-1]
    assert "tokens 0 to 2" in found(FrozenTokensAreComplete, frozen(count=3, published=(3, 3, -1)), staged(ROWS[0]))[0]


def test_a_finished_call_whose_freeze_does_not_say_so_breaks_I46():
    whole = TokensGenerated(CALL, 4, "c")
    assert found(FrozenTokensAreComplete, whole, frozen(count=4, published=(4, 4, -1), finish="stop")) == []
    assert "does not say so" in found(FrozenTokensAreComplete, whole, frozen(count=4, published=(4, 4, -1)))[0]
    assert found(FrozenTokensAreComplete, whole, CallBegun(CALL, 0), frozen(count=4, published=(4, 4, -1))) == []


def test_a_chunk_on_disk_with_a_logprob_that_is_none_breaks_I46():
    odd = [chunk(0, 2, logprobs=(-1.0, float("inf")))]
    assert "holds 2 tokens and 1 finite logprobs" in found(FrozenTokensAreComplete, start=saved(odd))[0]


# --- I48

CUT = [ASK, frozen(), ChunkIssued(CALL, ROWS[0].key, 1, 2), staged(ROWS[0])]
GONE = ChunksDiscarded(CALL, (ROWS[0].key,), "unsealed")
UNDONE = CutRolledBack(CALL, 0, False, "put failed")


def test_a_cut_that_seals_and_one_that_is_undone_are_held():
    sealed = [*CUT, acknowledged(ROWS[:1]), CutSealed(CALL, 2), SENT]
    again = [frozen(4, 2, published=(4, 4, -1)), staged(ROWS[1]), acknowledged(ROWS), CutSealed(CALL, 4)]
    assert found(AFailedCutLeavesNothing, *sealed, *again, CallEnded(CALL, "answered")) == []
    assert found(AFailedCutLeavesNothing, *CUT, UNDONE, failed(), GONE, SENT, frozen(), UNDONE) == []


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([*CUT, SENT], "and " + CALL + " is still frozen"),
        ([*CUT, UNDONE, failed(), SENT], "may still be staged when its receipt leaves"),
        ([*CUT, CutRolledBack(CALL, 2, False, "x"), GONE], "to 2 staged tokens; it had 0 before its freeze at 2"),
        ([*CUT, CutRolledBack(CALL, 0, True, "x"), GONE], "is rolled back (x) and still frozen"),
        ([*CUT, failed()], "is acknowledged as durable_failure (put failed: lost), and is still frozen"),
        ([*CUT, UNDONE, GONE, acknowledged(ROWS[:1])], "was rolled back, and is acknowledged as a durable prefix"),
        ([*CUT, CutSealed(CALL, 3)], "is sealed at 3 tokens; it was frozen at 2"),
        ([CutSealed(CALL, 3)], "is sealed at 3 tokens, and was not frozen"),
        ([*CUT, CutSealed(CALL, 2), frozen(4, 0)], "is frozen with 0 tokens staged; 2 were sealed or restored"),
        ([*CUT, frozen(3)], "is frozen at 3 tokens while it is frozen at 2"),
        ([*CUT, CallEnded(CALL, "answered")], "ended (answered) while it is frozen"),
        ([PrefixRestored(CALL, (), 3, "d", "c", 0, "", 5, False), frozen(4, 0)], "3 were sealed or restored"),
    ],
)
def test_a_cut_that_leaves_something_behind_breaks_I48(events, text):
    lines = found(AFailedCutLeavesNothing, *events)
    assert any(text in line for line in lines) and lines != []


def test_a_call_may_be_given_up_inside_its_cut_which_is_sealed_or_undone_all_the_same():
    given_up = [*CUT, CallEnded(CALL, "aborted")]
    assert found(AFailedCutLeavesNothing, *given_up, acknowledged(ROWS[:1]), CutSealed(CALL, 2), SENT) == []
    assert found(AFailedCutLeavesNothing, *given_up, UNDONE, failed(), GONE, SENT) == []
    assert "is still frozen" in found(AFailedCutLeavesNothing, *given_up, SENT)[0]
    assert "may still be staged" in found(AFailedCutLeavesNothing, *given_up, UNDONE, failed(), SENT)[0]


# --- I50


@pytest.mark.parametrize(
    ("wish", "text"),
    [
        ({"stop": 1}, "it has stop strings"),
        ({"bad_words": 2}, "it has bad_words"),
        ({"presence_penalty": 0.5}, "it has a penalty"),
        ({"frequency_penalty": -0.5}, "it has a penalty"),
        ({"grammar": True}, "it has a grammar"),
        ({"seed": 7}, "it has draws of its own seed"),
    ],
)
def test_a_cut_of_an_uncuttable_call_breaks_I50(wish, text):
    lines = found(UncuttableCallsAreNeverCut, EngineFound("r", False), asked(**wish), frozen())
    assert text in lines[0]
    assert len(found(UncuttableCallsAreNeverCut, asked(**wish), acknowledged(ROWS))) == 1


def test_what_looks_uncuttable_and_is_not_may_be_cut():
    greedy = asked(seed=7, temperature=0.0)
    assert found(UncuttableCallsAreNeverCut, EngineFound("r", False), greedy, frozen(), acknowledged(ROWS)) == []
    assert found(UncuttableCallsAreNeverCut, EngineFound("r", True), asked(seed=7), frozen()) == []
    assert found(UncuttableCallsAreNeverCut, asked(stop=1), failed("stop-strings")) == []


def test_a_cut_without_a_limit_without_a_token_or_inside_a_character_breaks_I50():
    unlimited = prefix_terms(max_new_tokens=None)
    assert "no output limit" in found(UncuttableCallsAreNeverCut, asked(), frozen(), given=unlimited)[0]
    assert found(UncuttableCallsAreNeverCut, asked(limit=3), frozen(), given=unlimited) == []
    assert "without a token" in found(UncuttableCallsAreNeverCut, asked(), frozen(count=0))[0]
    assert "inside a character" in found(UncuttableCallsAreNeverCut, EngineStarted(CALL, 2, 6, -1, 0, True))[0]


def test_a_freeze_after_the_deadline_breaks_I50():
    def frozen_at(time):
        return found(UncuttableCallsAreNeverCut, ASK, ("worker-0", CLOSED, 1.0), ("worker-0", frozen(), time))

    assert frozen_at(5.9) == []
    assert "after the deadline of its cut" in frozen_at(6.1)[0]


# --- I47

BEGUN = [EngineFound("r", True), asked(), CallBegun(CALL, 0), TokensGenerated(CALL, 2)]
BACK = ChunksDiscarded(CALL, (ROWS[0].key,), "put-failed")
PUT_ALONE = [ChunkIssued(CALL, ROWS[0].key, 3, 9), BACK, ChunkIssued(CALL, ROWS[0].key, 1, 2)]
ALONE = [*PUT_ALONE, BACK]


@pytest.mark.parametrize(
    "events",
    [
        [*BEGUN, ASK, CLOSED, *ALONE, BACK, failed(), SENT],
        [*BEGUN, asked(stop=1), ASK, CLOSED, failed("stop-strings"), SENT],
        [ASK, CLOSED, failed("no such call runs here"), SENT],
        [*BEGUN, CallEnded(CALL, "aborted"), ASK, CLOSED, failed("no such call runs here"), SENT],
        [*BEGUN, ASK, ("worker-0", CLOSED, 1.0), ("worker-0", failed("late"), 6.0), SENT],
        [*BEGUN, ASK, CLOSED, RoutesAssembled(CALL, "cut", 2, 2, 2, "short"), failed("routes"), SENT],
        [*BEGUN[:3], ASK, CLOSED, failed("no-token"), SENT],
        [*BEGUN, MediaCompared(CALL, "k", "parent", "", "d", "unreadable"), ASK, CLOSED, failed("media"), SENT],
        [*BEGUN, ASK, CLOSED, failed("interrupted")],  # no receipt: whoever asked has given up
    ],
)
def test_a_failure_with_a_cause_of_its_own_is_held(events):
    assert found(OneCallFailsAlone, *events) == []


@pytest.mark.parametrize(
    "events",
    [
        [*BEGUN, ASK, CLOSED, failed(), SENT],
        [*BEGUN, ASK, CLOSED, *ALONE[:2], failed(), SENT],  # with the others of its batch, and not alone
        [*BEGUN, ASK, CLOSED, *PUT_ALONE, failed(), SENT],  # nobody took it back: it was put
        [*BEGUN, ASK, CLOSED, failed("no-token"), SENT],
        [*BEGUN, ASK, CLOSED, RoutesAssembled("another", "cut", 2, 2, 2, "short"), failed("routes"), SENT],
    ],
)
def test_a_failure_without_a_cause_of_its_own_breaks_I47(events):
    lines = found(OneCallFailsAlone, *events)
    assert "nothing of its own explains it" in lines[0]


def test_an_inventory_without_an_answer_breaks_I47_unless_something_failed():
    unanswered = ("gym-0", CutAnswered("worker-0", CHECKPOINT, ("unanswered",)))
    assert "it sent no receipt" in found(OneCallFailsAlone, *BEGUN, ASK, unanswered)[0]
    assert found(OneCallFailsAlone, *BEGUN, ("job", FaultInjected("drop", "x")), ASK, unanswered) == []


# --- RECEIPT-1

LIVE = ("gym-0", EpisodeAdmitted(KEY, 0, 0, False, 0))
TOLD = ("gym-0", CutAnswered("worker-0", CHECKPOINT, ("durable_prefix",)))
SETTLED = ("gym-0", EpisodeCut(KEY, 0, CALL, "durable_prefix", 2))
WHOLE = [LIVE, CallBegun(CALL, 0), ASK, acknowledged(ROWS[:1]), SENT, TOLD, SETTLED]


def test_a_receipt_that_answers_its_inventory_is_held():
    assert found(AReceiptAnswersItsInventory, *WHOLE, ReceiptSent(CHECKPOINT, "i", 1, True)) == []
    assert found(AReceiptAnswersItsInventory, CallBegun("another/c0", 0), ASK) == []  # nobody's episode any more


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([LIVE, CallBegun(f"{KEY}/c1", 0), ASK], f"leaves out {KEY}/c1, which runs there"),
        ([ASK, SENT], "says nothing of 1 calls"),
        ([ASK, acknowledged(ROWS), failed()], "twice (durable_prefix, durable_failure)"),
        ([ASK, acknowledged(ROWS), SENT, failed()], "after the receipt that answers for it"),
        ([ASK, acknowledged(ROWS, call="another/c0")], "which no inventory of"),
        ([ASK, acknowledged(ROWS), ReceiptSent(CHECKPOINT, "i", 2, False)], "answers 2 calls, 1 were asked about"),
        ([ASK, acknowledged(ROWS), ReceiptSent(CHECKPOINT, "j", 1, False)], "answers the inventory j"),
        ([ASK, acknowledged(ROWS), ReceiptSent(CHECKPOINT, "i", 1, True)], "repeats a receipt that it never sent"),
        ([ASK, failed(), SENT, TOLD], "for durable_prefix, worker-0 said durable_failure of it"),
        ([ASK, acknowledged(ROWS), SENT, SETTLED], "durable_prefix of 2 tokens, its worker said durable_prefix of 4"),
        ([SETTLED], "a durable prefix that nobody has acknowledged"),
        ([("gym-0", CutAsked("worker-0", CHECKPOINT, 1, (CALL, CALL), "i"))], "names a call twice"),
        ([ASK, acknowledged(ROWS), SENT, ("gym-0", CutAnswered("worker-0", CHECKPOINT, ()))], "counts 0 answers"),
        ([("gym-0", EpisodeCut(KEY, 0, "another/c0", "unanswered", 0))], "is settled inside another/c0"),
    ],
)
def test_a_receipt_of_something_else_breaks_RECEIPT_1(events, text):
    lines = found(AReceiptAnswersItsInventory, *events)
    assert any(text in line for line in lines) and lines != []


# --- CUT-1

EMPTY = key_set(())
PHASE = ("controller", GymPhaseStarted(CHECKPOINT))
EXPORTED = ("gym-0", EpisodeExported(KEY, "agent", "session", 0))
BUILT = ("controller", ManifestBuilt(CHECKPOINT, 1, EMPTY, EMPTY, EMPTY))
PUBLISHED = ("controller", SnapshotPublished("bootstrap", 1, 0, 0, 0, 0))
CUT_OF_2 = ("gym-0", EpisodeCut(KEY, 0, CALL, "durable_prefix", 4))


def cut_saved(**other):
    values = {
        "key": KEY,
        "call": CALL,
        "keys": tuple(row.key for row in ROWS),
        "count": 4,
        "digest": ROWS[1].cumulative,
        "limit": 8,
    }
    return ("gym-0", CutSaved(**{**values, **other}))


def whole(*between, settled=CUT_OF_2, said=None):
    return [PHASE, acknowledged(ROWS) if said is None else said, settled, EXPORTED, *between, BUILT, PUBLISHED]


def test_an_episode_that_is_saved_with_what_was_acknowledged_is_held():
    assert found(AcknowledgedCutsAreSaved, *whole(cut_saved()), start=saved(ROWS)) == []
    lost = ("gym-0", EpisodeCut(KEY, 0, CALL, "unanswered", 0))
    assert found(AcknowledgedCutsAreSaved, *whole(settled=lost, said=failed())) == []
    assert found(AcknowledgedCutsAreSaved, *whole(cut_saved(count=1))[:-1]) == []  # never published


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        (whole(), "is saved with no cut"),
        (whole(cut_saved(count=2)), "is saved with a cut of 2 tokens"),
        (whole(cut_saved(digest="x")), "is saved with a cut of 4 tokens (x)"),
        (whole(cut_saved(limit=9)), "is saved with a cut of 4 tokens"),
        (whole(cut_saved(call=f"{KEY}/c1")), f"before its turn 0, with a cut of {KEY}/c1"),
        (whole(cut_saved(), said=failed()), "was acknowledged with no cut"),
        ([PHASE, EXPORTED, cut_saved(), BUILT, PUBLISHED], "and was not settled inside a call"),
        (whole(cut_saved(), settled=("gym-0", EpisodeCut(KEY, 1, f"{KEY}/c1", "unanswered", 0))), "was settled inside"),
    ],
)
def test_an_episode_that_is_saved_with_something_else_breaks_CUT_1(steps, text):
    lines = found(AcknowledgedCutsAreSaved, *steps)
    assert any(text in line for line in lines) and lines != []


def test_a_record_on_disk_that_is_not_what_was_saved_breaks_CUT_1():
    lines = judged(AcknowledgedCutsAreSaved, *at_worker(*whole(cut_saved())), given=TERMS, start=saved(ROWS, evidence(ROWS[:1])))
    assert any("the record of" in line for line in lines) and lines != []


def test_an_installed_episode_that_nobody_has_claimed_keeps_its_cut():
    key = KEY.replace("-a0", "-a1")
    exported = ("gym-0", EpisodeExported(key, "agent", "session", 0))
    kept = cut_saved(key=key, call=f"{key}/c0")
    built = ("controller", ManifestBuilt(CHECKPOINT, 2, EMPTY, EMPTY, EMPTY))
    published = ("controller", SnapshotPublished("bootstrap", 2, 0, 0, 0, 0))
    again = [PHASE, exported, kept, built, published]
    assert found(AcknowledgedCutsAreSaved, *again, start=saved(ROWS), life=2) == []
    dropped = found(AcknowledgedCutsAreSaved, PHASE, exported, built, published, start=saved(ROWS), life=2)
    assert "has not used it, and is saved without" in dropped[0]
    used = found(AcknowledgedCutsAreSaved, CallBegun(f"{key}/c0", 0), *again, start=saved(ROWS), life=2)
    assert "and was not settled inside a call" in used[0]


def test_the_hand_written_folder_is_what_these_tests_take_it_for():
    files = saved(ROWS)
    assert files[f"{SOURCE}/data_plane/rollout_staging.msgpack"] == pack([[row.key, encode_chunk(row)] for row in ROWS])
    assert isinstance(asked(), CallAsked) and isinstance(RowStagedDone(CALL, 1, "d"), RowStagedDone)
