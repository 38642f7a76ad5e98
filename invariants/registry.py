"""Every judge, in order of its invariant. A judge that is not named here does not judge."""

from __future__ import annotations

from invariants.configuration.refused_at_set_up import RefusedAtSetUp
from invariants.configuration.schemas_are_exact import SchemasAreExact
from invariants.durability.canonical_rows_are_the_sidecars import CanonicalRowsAreTheSidecars
from invariants.durability.cursor_and_reservations_share_a_prefix import CursorAndReservationsShareAPrefix
from invariants.durability.every_anchor_gets_its_snapshot import EveryAnchorGetsItsSnapshot
from invariants.durability.every_change_moves_the_mutation_version import EveryChangeMovesTheMutationVersion
from invariants.durability.every_owned_staging_row_is_saved import EveryOwnedStagingRowIsSaved
from invariants.durability.failed_snapshots_are_bounded import FailedSnapshotsAreBounded
from invariants.durability.finalized_groups_are_the_replay_groups import FinalizedGroupsAreTheReplayGroups
from invariants.durability.gym_never_delays_a_trainer_save import GymNeverDelaysATrainerSave
from invariants.durability.mutations_never_overlap_an_exclusive_section import MutationsNeverOverlapAnExclusiveSection
from invariants.durability.no_cut_inside_an_optimizer_commit import NoCutInsideAnOptimizerCommit
from invariants.durability.no_staged_row_is_left_behind import NoStagedRowIsLeftBehind
from invariants.durability.payload_is_durable_before_its_name import PayloadIsDurableBeforeItsName
from invariants.durability.the_fingerprint_is_the_rollouts import TheFingerprintIsTheRollouts
from invariants.durability.the_newest_restore_point_stays import TheNewestRestorePointStays
from invariants.durability.the_newest_valid_state_is_restored import TheNewestValidStateIsRestored
from invariants.gym.a_prepared_instance_stands_still import APreparedInstanceStandsStill
from invariants.gym.admission_reopens import AdmissionReopens
from invariants.gym.calls_end_in_time import CallsEndInTime
from invariants.gym.cohorts_are_judged_whole import CohortsAreJudgedWhole
from invariants.gym.continued_once import ContinuedOnce
from invariants.gym.control_calls_are_this_runs import ControlCallsAreThisRuns
from invariants.gym.deadlines_stand_still import DeadlinesStandStill
from invariants.gym.effects_land_as_promised import EffectsLandAsPromised
from invariants.gym.errors_have_their_cause import ErrorsHaveTheirCause
from invariants.gym.exports_are_known import ExportsAreKnown
from invariants.gym.late_calls_change_nothing import LateCallsChangeNothing
from invariants.gym.manifest_is_the_unfinished import ManifestIsTheUnfinished
from invariants.gym.nothing_is_restored_in_part import NothingIsRestoredInPart
from invariants.gym.one_owner import OneOwner
from invariants.gym.participants_are_there import ParticipantsAreThere
from invariants.gym.restarts_are_not_saved import RestartsAreNotSaved
from invariants.gym.saved_at_its_last_boundary import SavedAtItsLastBoundary
from invariants.ledger.a_batch_fails_whole import ABatchFailsWhole
from invariants.ledger.a_lost_cohort_is_a_new_group_attempt import ALostCohortIsANewGroupAttempt
from invariants.ledger.calls_carry_their_weights import CallsCarryTheirWeights
from invariants.ledger.dispatched_is_submitted import DispatchedIsSubmitted
from invariants.ledger.dropped_is_retired import DroppedIsRetired
from invariants.ledger.every_prompt_once import EveryPromptOnce
from invariants.ledger.every_row_is_reported_once import EveryRowIsReportedOnce
from invariants.ledger.failures_are_paid_for import FailuresArePaidFor
from invariants.ledger.forgotten_was_retired import ForgottenWasRetired
from invariants.ledger.groups_are_whole import GroupsAreWhole
from invariants.ledger.marks_are_forgotten import MarksAreForgotten
from invariants.ledger.new_identity_costs_one import NewIdentityCostsOne
from invariants.ledger.no_section_visits_all import NoSectionVisitsAll
from invariants.ledger.no_stream_outlives_its_rollout import NoStreamOutlivesItsRollout
from invariants.ledger.one_live_execution import OneLiveExecution
from invariants.ledger.one_open_step import OneOpenStep
from invariants.ledger.one_sealed_attempt import OneSealedAttempt
from invariants.ledger.refusal_costs_nothing import RefusalCostsNothing
from invariants.ledger.refused_rows_are_sent_again import RefusedRowsAreSentAgain
from invariants.ledger.rows_share_no_fate import RowsShareNoFate
from invariants.ledger.seal_is_current import SealIsCurrent
from invariants.ledger.trained_is_what_was_generated import TrainedIsWhatWasGenerated
from invariants.ledger.training import TrainsAsTheReference
from invariants.liveness.every_run_progresses_or_ends_typed import EveryRunProgressesOrEndsTyped
from invariants.liveness.gym_resumes_before_publication import GymResumesBeforePublication
from invariants.liveness.locks_are_taken_in_order import LocksAreTakenInOrder
from invariants.liveness.unhealthy_peers_are_reported import UnhealthyPeersAreReported
from invariants.prefix.a_failed_cut_leaves_nothing import AFailedCutLeavesNothing
from invariants.prefix.a_receipt_answers_its_inventory import AReceiptAnswersItsInventory
from invariants.prefix.a_restored_cut_has_one_owner import ARestoredCutHasOneOwner
from invariants.prefix.acknowledged_cuts_are_saved import AcknowledgedCutsAreSaved
from invariants.prefix.batches_are_bounded import BatchesAreBounded
from invariants.prefix.draws_are_used_once import DrawsAreUsedOnce
from invariants.prefix.each_route_row_is_its_tokens import EachRouteRowIsItsTokens
from invariants.prefix.frozen_tokens_are_complete import FrozenTokensAreComplete
from invariants.prefix.gates_open_again import GatesOpenAgain
from invariants.prefix.media_are_the_same import MediaAreTheSame
from invariants.prefix.one_call_fails_alone import OneCallFailsAlone
from invariants.prefix.restored_routes_are_trained import RestoredRoutesAreTrained
from invariants.prefix.route_reads_are_grouped import RouteReadsAreGrouped
from invariants.prefix.serving_never_waits_for_a_lifecycle import ServingNeverWaitsForALifecycle
from invariants.prefix.text_is_uninterrupted import TextIsUninterrupted
from invariants.prefix.tokens_stay_within_the_limit import TokensStayWithinTheLimit
from invariants.prefix.uncuttable_calls_are_never_cut import UncuttableCallsAreNeverCut
from invariants.prefix.unusable_prefixes_fall_back import UnusablePrefixesFallBack
from protocol.judging import Judge

JUDGES: tuple[type[Judge], ...] = (
    ABatchFailsWhole,  # BATCH-1
    FailuresArePaidFor,  # BUDGET-1
    CohortsAreJudgedWhole,  # COHORT-1
    LateCallsChangeNothing,  # CONTROL-1
    AcknowledgedCutsAreSaved,  # CUT-1
    GatesOpenAgain,  # GATE-1
    UnhealthyPeersAreReported,  # HEALTH-1
    OneLiveExecution,  # I1
    SealIsCurrent,  # I2
    OneSealedAttempt,  # I3
    DispatchedIsSubmitted,  # I4
    RefusalCostsNothing,  # I5
    NewIdentityCostsOne,  # I6
    DroppedIsRetired,  # I7
    ForgottenWasRetired,  # I8
    MarksAreForgotten,  # I9
    EveryPromptOnce,  # I10
    GroupsAreWhole,  # I11
    OneOpenStep,  # I12
    EveryOwnedStagingRowIsSaved,  # I13
    CanonicalRowsAreTheSidecars,  # I14
    FinalizedGroupsAreTheReplayGroups,  # I15
    CursorAndReservationsShareAPrefix,  # I16
    NoCutInsideAnOptimizerCommit,  # I17
    MutationsNeverOverlapAnExclusiveSection,  # I18
    LocksAreTakenInOrder,  # I19
    EveryChangeMovesTheMutationVersion,  # I20
    PayloadIsDurableBeforeItsName,  # I21
    TheNewestValidStateIsRestored,  # I22
    TheNewestRestorePointStays,  # I23
    GymNeverDelaysATrainerSave,  # I24
    EveryAnchorGetsItsSnapshot,  # I25
    ManifestIsTheUnfinished,  # I26
    OneOwner,  # I27
    RestartsAreNotSaved,  # I28
    ExportsAreKnown,  # I29
    CallsEndInTime,  # I30
    AdmissionReopens,  # I31
    ErrorsHaveTheirCause,  # I32
    FailedSnapshotsAreBounded,  # I33
    DeadlinesStandStill,  # I34
    RowsShareNoFate,  # I35
    RefusedRowsAreSentAgain,  # I36
    NoStreamOutlivesItsRollout,  # I37
    ALostCohortIsANewGroupAttempt,  # I38
    NothingIsRestoredInPart,  # I39
    ParticipantsAreThere,  # I40
    ContinuedOnce,  # I41
    NoSectionVisitsAll,  # I42
    TrainedIsWhatWasGenerated,  # I43
    TokensStayWithinTheLimit,  # I44
    TextIsUninterrupted,  # I45
    FrozenTokensAreComplete,  # I46
    OneCallFailsAlone,  # I47
    AFailedCutLeavesNothing,  # I48
    NoStagedRowIsLeftBehind,  # I49
    UncuttableCallsAreNeverCut,  # I50
    UnusablePrefixesFallBack,  # I51
    DrawsAreUsedOnce,  # I52
    ServingNeverWaitsForALifecycle,  # I53
    EachRouteRowIsItsTokens,  # I54
    RestoredRoutesAreTrained,  # I55
    RouteReadsAreGrouped,  # I56
    BatchesAreBounded,  # I57
    MediaAreTheSame,  # I58
    RefusedAtSetUp,  # I59
    SchemasAreExact,  # I60
    TheFingerprintIsTheRollouts,  # I61
    GymResumesBeforePublication,  # I63
    ControlCallsAreThisRuns,  # I64
    EveryRowIsReportedOnce,  # I65
    EffectsLandAsPromised,  # I66
    EveryRunProgressesOrEndsTyped,  # I67
    ARestoredCutHasOneOwner,  # OWNER-1
    TrainsAsTheReference,  # PARITY-1
    APreparedInstanceStandsStill,  # PHASE-1
    AReceiptAnswersItsInventory,  # RECEIPT-1
    SavedAtItsLastBoundary,  # TURN-1
    CallsCarryTheirWeights,  # WEIGHTS-1
)
