"""The figures of a run in a few lines of text; all of them are in the JSON, and ``docs/figures.md`` says what they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Plain = Mapping[str, Any]  # a struct of figures as plain data
NAME_WIDTH = 15


def run_figure_lines(figures: Plain) -> list[str]:
    """``figures``: a ``RunFigures`` as plain data."""
    out: list[str] = []
    for life in figures["lives"]:
        out.append(f"figures of life {life['life']} (seconds of its own clock)")
        out += [f"  {name:{NAME_WIDTH}s} {text}" for name, text in _life(life)]
    for crash in figures["lost_work"]:
        parts = [f"{crash['lost'][what]:,} of {crash['done'][what]:,} {what}" for what in ("tokens", "turns", "rollouts")]
        out.append(f"the crash of life {crash['life']} cost {', '.join(parts)}: done again in life {crash['life'] + 1}")
    return out


def _life(life: Plain) -> Iterator[tuple[str, str]]:
    """Lines of one life; what did not happen has none."""
    snapshots, gym, rows, recovery = life["snapshots"], life["gym"], life["rows"], life["rollout_recovery"]
    if recovery["groups_considered"]:
        finalized, dropped = recovery["groups_finalized"], recovery["groups_dropped"]
        groups = f"{recovery['groups_considered']} groups, {finalized} finalized, {dropped} dropped"
        siblings = f"{recovery['siblings_reused']} siblings reused, {recovery['siblings_redispatched']} sent again"
        yield "recovery", f"{groups}; {siblings}; restored after {recovery['restore_s']:.3f}"
    if snapshots["outcomes"]:
        yield "snapshots", "; ".join(_counted(counts, outcome) for outcome, counts in snapshots["outcomes"].items())
    published = snapshots["rollout_checkpoint"]
    if published:
        means = [f"{name} {_mean(published, name):.3f}" for name in ("total_save", "tq_save", "barrier_wait", "exclusive_hold")]
        yield "mean save", ", ".join(means)
    if gym["gym_parked_seconds"]["count"]:
        sums = [f"{sum(one[name] for one in gym['checkpoints'])} {name}" for name in ("cut", "failed", "skipped")]
        yield "gym parked", f"{_durations(gym['gym_parked_seconds'])}; episodes {', '.join(sums)}"
    blocked = {f"{lock} {kind}": watch for lock, one in life["barriers"].items() for kind, watch in one["blocked_s"].items()}
    if blocked:
        yield "kept out", ", ".join(f"{name} {_durations(watch)}" for name, watch in blocked.items())
    for name, lock in life["locks"].items():
        if lock["wait_s"]:
            yield f"{name} lock", ", ".join(f"{task} waited {_durations(watch)}" for task, watch in lock["wait_s"].items())
    alone = [_counted(life["processes"][name], name) for name in ("killed", "stalled") if life["processes"][name]]
    if alone:
        yield "alone", "; ".join(alone)
    if rows["sent"]:
        by_outcome = ", ".join(f"{outcome} {_durations(watch)}" for outcome, watch in rows["run_s"].items())
        yield "rows", f"{rows['sent']} sent, {rows['resends']} of them again; {by_outcome}"
    given_up = [_counted(rows[name], name.replace("_", " ")) for name in ("abandoned", "retires", "groups_dropped") if rows[name]]
    if given_up:
        yield "given up", "; ".join(given_up)
    calls = [_counted(one["outcomes"], operation) for operation, one in gym["control_calls"].items()]
    if calls:
        yield "control", "; ".join(calls)
    yield from _prefix(life["prefix"])
    if life["train_steps"]:
        total, restored, calls, tokens = (
            sum(step[name] for step in life["train_steps"])
            for name in ("calls", "restored_calls", "prefix_calls", "prefix_tokens")
        )
        inside = f", {calls:,} went on after {tokens:,} restored tokens" if calls else ""
        yield "trained", f"{len(life['train_steps'])} steps, {total:,} model calls, {restored:,} of them restored{inside}"


def _prefix(prefix: Plain) -> Iterator[tuple[str, str]]:
    """Lines of the prefix level."""
    answers, failures = (_added(one[name] for one in prefix["checkpoints"]) for name in ("answers", "durable_failure"))
    if answers:
        why = f"; failures: {_listed(failures)}" if failures else ""
        yield "cuts", f"{_counted(answers, 'model calls')}{why}"
    if prefix["fence_hold_s"]["count"]:
        yield "fence hold", f"{_durations(prefix['fence_hold_s'])}; opened {_listed(prefix['fence_opened'])}"
    chunks, restores = prefix["chunks"], prefix["restores"]
    if chunks["staged"] or chunks["deleted"]:
        gone = _counted(chunks["deleted"], "deleted") if chunks["deleted"] else "0 deleted"
        yield "chunk rows", f"{chunks['staged']:,} staged ({chunks['staged_bytes']:,} bytes), {gone}"
    if restores["restored"] or restores["fell_back"] or restores["rejected"]:
        parts = [
            f"{restores['restored']:,} calls with {restores['tokens']:,} tokens, {restores['terminal']:,} of them whole answers"
        ]
        parts += [_counted(restores[name], name.replace("_", " ")) for name in ("fell_back", "rejected") if restores[name]]
        yield "prefixes", f"{'; '.join(parts)}; {restores['keys']:,} rows read in {restores['gets']:,} requests"
    for name, loop in prefix["handoffs"].items():
        waited, held = (loop[what] for what in ("waited_s", "held_s"))
        times = f"waited {waited['total_s']:.3f} in all, held {held['total_s']:.4f} (max {held['max_s']:.4f})"
        yield f"{name} loop", f"{held['count']:,} handoffs of {loop['items']:,} items: {times}"


def _added(each: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for counts in each:
        total.update(counts)
    return dict(total)


def _counted(counts: Mapping[str, int], name: str) -> str:
    return f"{sum(counts.values())} {name} ({_listed(counts)})"


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {why}" for why, count in counts.items())


def _durations(watch: Plain) -> str:
    return f"{watch['count']} x {watch['mean_s']:.3f} (max {watch['max_s']:.3f})"


def _mean(structs: Sequence[Plain], name: str) -> float:
    total: float = sum(one[name] for one in structs)
    return total / len(structs)
