"""Scenario files: what is read, what the overlays do, and that every fault of a file is named at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol.config import Level
from protocol.external import Service
from scenarios.builtin import WORKPLACE
from scenarios.faults import fault_from
from scenarios.files import library, load
from scenarios.model import InputError, Scenario

SMALL = """
format = 1
name = "small"
[load]
groups = 2
siblings = 2
[job]
target_level = "sibling"
train_steps = 1
"""


def written(tmp_path: Path, text: str, name: str = "small.toml") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def refusal(*arguments: str, **options: object) -> str:
    with pytest.raises(InputError) as error:
        load(*arguments, **options)  # type: ignore[arg-type]
    return str(error.value)


@pytest.mark.parametrize("name", library())
def test_every_scenario_of_the_library_is_accepted_and_named_as_its_file(name: str) -> None:
    scenario = load(name).scenario
    assert (scenario.name, scenario.source != "", len(scenario.tasks)) == (name, True, 8)


def test_the_library_has_the_scenarios_of_this_step() -> None:
    assert {"workplace", "sibling", "fixed-order", "trainer-only"} <= set(library())


def test_the_main_scenario_has_the_load_that_its_numbers_are_promised_for() -> None:
    job = load("workplace").scenario.job
    assert (job.level, job.num_prompts_per_step, job.num_generations_per_prompt, job.gym_instances, job.train_steps) == (
        Level.TURN, 4, 4, 2, 3)  # fmt: skip


def test_the_load_becomes_the_jobs_own_keys(tmp_path: Path) -> None:
    job = load(written(tmp_path, SMALL)).scenario.job
    assert (job.num_prompts_per_step, job.num_generations_per_prompt, job.train_steps, job.level) == (2, 2, 1, Level.SIBLING)


def test_all_faults_of_a_file_are_reported_at_once_with_file_and_key(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
format = 1
name = "bad"
colour = "red"
[load]
groups = "four"
[job]
train_stepz = 3
[job.sampler]
name = 7
[contract]
may_drop = "yes"
prefix_cache = true
""",
    )
    message = refusal(path)
    for part in (path, "colour is not a known key", "load.groups is 'four'", "job.train_stepz is not a known key",
                 "job.sampler.name is 7", "contract.may_drop is 'yes'",
                 "contract.prefix_cache comes with a later step"):  # fmt: skip
        assert part in message


def test_a_contradictory_job_is_refused_with_its_key(tmp_path: Path) -> None:
    path = written(tmp_path, SMALL.replace('"sibling"', '"turn"'))
    assert "job.rollout_checkpointing.interval_s is not set: target_level turn needs periodic snapshots" in refusal(path)


def test_a_key_that_is_unknown_hides_no_other_fault(tmp_path: Path) -> None:
    text = SMALL.replace('"sibling"', '"turn"') + "turn_granularity = 1\nasync_engine = false\n"
    found = refusal(written(tmp_path, text))
    for part in (
        "job.turn_granularity is not a known key any more",
        "job.rollout_checkpointing.interval_s is not set",
        "job.async_engine is false",
    ):
        assert part in found


def test_a_file_that_says_what_must_be_refused_is_loaded_and_keeps_its_tables(tmp_path: Path) -> None:
    text = SMALL.replace('"sibling"', '"turn"') + "turn_granularity = 1\n"
    scenario = load(written(tmp_path, text + '[contract]\nrefused = ["turn_granularity"]\n')).scenario
    assert scenario.tables["turn_granularity"] == 1
    assert scenario.job.target_level == "turn"
    assert scenario.expect.judges == ("I59",)
    assert scenario.contract.allows("ConfigError")


def test_a_size_may_not_be_given_twice(tmp_path: Path) -> None:
    assert "job.num_prompts_per_step is the load's" in refusal(written(tmp_path, SMALL + "num_prompts_per_step = 3\n"))


def test_broken_toml_is_named_by_file_and_line(tmp_path: Path) -> None:
    path = written(tmp_path, "format = 1\nname = \n")
    assert refusal(path).startswith(f"{path}:2: is no TOML")


def test_an_unknown_scenario_is_answered_with_the_nearest_name() -> None:
    assert "unknown scenario 'workplase' (did you mean workplace?)" in refusal("workplase")


def test_a_missing_scenario_file_is_named() -> None:
    assert refusal("nowhere/none.toml") == "nowhere/none.toml: there is no such scenario file"


def test_the_level_option_overrides_the_file() -> None:
    assert load("workplace", level="sibling").scenario.job.level is Level.SIBLING
    assert "must be one of rollout, sibling, turn, prefix" in refusal("workplace", level="turns")


def test_the_digest_is_over_everything_after_all_overlays(tmp_path: Path) -> None:
    plain = load("workplace").scenario
    faults = written(
        tmp_path, 'format = 1\n[[faults]]\nat = { process = "gym-0", event = "EpisodeAdmitted" }\ndo = { discard = {} }\n'
    )
    digests = {plain.digest, load("workplace", level="sibling").scenario.digest, load("workplace", faults=faults).scenario.digest}
    assert len(digests) == 3
    assert load("workplace").scenario.digest == plain.digest and len(plain.digest) == 8


def test_a_scenario_survives_being_saved() -> None:
    scenario = load("lost-row").scenario
    again = msgspec.json.decode(msgspec.json.encode(scenario), type=Scenario)
    assert (again, again.digest) == (scenario, scenario.digest)


def test_judges_see_the_scenario_as_terms() -> None:
    scenario = load("fixed-order").scenario
    terms = scenario.terms
    assert (terms.scenario, terms.job, terms.data_length, terms.contract.fixed_order) == (
        "fixed-order", scenario.job, len(WORKPLACE), True)  # fmt: skip


FAULT = """
[[faults]]
at = {{ process = "{process}", event = "{event}", edge = "{edge}" }}
do = {{ {verb} = {{ {arguments} }} }}
"""


@pytest.mark.parametrize(
    ("process", "event", "edge", "verb", "arguments", "expected"),
    [
        ("gym-7", "EpisodeAdmitted", "after", "discard", "", "faults[0].at.process is 'gym-7': this job has job, controller"),
        ("gym-0", "EpisodeAdmited", "after", "discard", "", "did you mean 'EpisodeAdmitted'?"),
        ("gym-0", "EpisodeAdmitted", "middle", "discard", "", "faults[0].at.edge is 'middle'"),
        ("gym-0", "EpisodeAdmitted", "after", "kill", "", "faults[0].do.kill.process is missing"),
        ("gym-0", "EpisodeAdmitted", "after", "kil", "", "faults[0].do.kil is not a known verb (did you mean 'kill'?)"),
        ("gym-0", "EpisodeAdmitted", "after", "kill", 'process = "controller"', "that is what a crash point is"),
        ("gym-0", "EpisodeAdmitted", "after", "restart", 'process = "gym-9"', "restart.process is 'gym-9': this job's processes"),
        ("gym-0", "EpisodeAdmitted", "after", "stall", 'process = "gym-0", for_s = 0.0', "faults[0].do.stall.for_s is 0.0"),
        ("job", "LifeStarted", "after", "kill", 'process = "gym-0"', "no process has started there that kill could befall"),
        ("gym-0", "EpisodeAdmitted", "after", "hold", "", "faults[0].do.hold.until is missing"),
        (
            "gym-0",
            "EpisodeAdmitted",
            "after",
            "hold",
            'until = { process = "gym-0", event = "EpisodeEnded" }',
            "would wait for itself for ever",
        ),
        (
            "gym-0",
            "EpisodeAdmitted",
            "after",
            "hold",
            'until = { process = "gym-1", event = "EpisodeEnd" }',
            "hold.until.event is 'EpisodeEnd': it must be an event of docs/events.md (did you mean 'EpisodeEnded'?)",
        ),
        (
            "gym-0",
            "EpisodeAdmitted",
            "after",
            "delay",
            'operation = "commit", to = "gym-0"',
            "faults[0].do.delay.by_s is missing",
        ),
        ("gym-0", "EpisodeAdmitted", "after", "drop", 'operation = "comit", to = "gym-0"', "did you mean 'commit'?"),
        ("gym-0", "EpisodeAdmitted", "after", "reorder", 'operation = "commit", to = "job"', "reorder.to is 'job'"),
        ("gym-0", "EpisodeAdmitted", "after", "refuse", 'instance = "gym-0", rows = 0', "faults[0].do.refuse.rows is 0"),
        (
            "gym-0",
            "EpisodeAdmitted",
            "after",
            "abort",
            'worker = "gym-0"',
            "abort.worker is 'gym-0': this job's workers are worker-0",
        ),
        (
            "gym-0",
            "EpisodeAdmitted",
            "after",
            "lose_rows",
            'partition = "stage", rows = 1',
            "faults[0].do.lose_rows.partition is 'stage'",
        ),
        ("gym-0", "EpisodeAdmitted", "after", "explode", "", "faults[0].do.explode is not a known verb"),
        (
            "gym-0",
            "EpisodeAdmitted",
            "after",
            "break_stream",
            'rows = -1, instance = "gym-0"',
            "faults[0].do.break_stream.rows is -1",
        ),
        (
            "gym-0",
            "EpisodeAdmitted",
            "after",
            "break_stream",
            'row = 1, instance = "gym-0"',
            "faults[0].do.break_stream.row is not a known key",
        ),
        ("gym-0", "EpisodeAdmitted", "after", "fail_call", 'operation = "comit", to = "gym-0"', "did you mean 'commit'?"),
        (
            "gym-0",
            "EpisodeAdmitted",
            "after",
            "config",
            'drop_participant = "a", instance = "gym-9"',
            "config.instance is 'gym-9'",
        ),
    ],
)
def test_a_wrong_fault_is_refused_with_its_key(
    tmp_path: Path, process: str, event: str, edge: str, verb: str, arguments: str, expected: str
) -> None:
    text = SMALL + FAULT.format(process=process, event=event, edge=edge, verb=verb, arguments=arguments)
    assert expected in refusal(written(tmp_path, text))


def test_a_fault_says_what_it_does_in_full(tmp_path: Path) -> None:
    text = SMALL + FAULT.format(
        process="controller",
        event="SnapshotStarted",
        edge="after",
        verb="fail_call",
        arguments='operation = "prepare", to = "gym-1"',
    )
    (fault,) = load(written(tmp_path, text)).scenario.faults
    assert (fault.process, fault.event, fault.occurrence, fault.verb) == ("controller", "SnapshotStarted", 1, "fail_call")
    assert fault.arguments == {"operation": "Prepare", "to": "gym-1", "how": "error", "times": 1, "cause": None}


def test_a_mark_to_be_reached_is_the_name_of_an_event(tmp_path: Path) -> None:
    assert load(written(tmp_path, SMALL + '[expect]\nreach = ["AttemptRefused"]\n')).scenario.expect.reach == ("AttemptRefused",)
    assert "expect.reach[0] is 'Refused': it must be an event" in refusal(
        written(tmp_path, SMALL + '[expect]\nreach = ["Refused"]\n')
    )


def test_a_faults_file_adds_to_the_scenarios_own(tmp_path: Path) -> None:
    extra = written(
        tmp_path, "format = 1\n" + FAULT.format(process="gym-0", event="ReplySent", edge="after", verb="discard", arguments="")
    )
    assert [fault.verb for fault in load("lost-row", faults=extra).scenario.faults] == ["break_stream", "discard"]
    assert "tags is not a known key" in refusal(
        "workplace", faults=written(tmp_path, "format = 1\ntags = []\nfaults = []\n", "b.toml")
    )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("format = 1", "format = 2", "format is 2: this version reads format 1"),
        ("format = 1", "format = 1.0", "format is 1.0: this version reads format 1"),
        ("format = 1", "format = true", "format is True: this version reads format 1"),
        ('"small"', '"Small one"', "it must be lower-case letters, digits and -"),
        ("siblings = 2", "siblings = 1000000000", "load.siblings is 1000000000: it must be less than or equal to 200000"),
        (
            "siblings = 2",
            "siblings = 2\ngym_instances = 2000",
            "load.gym_instances is 2000: it must be less than",
        ),
        ("train_steps = 1", 'train_steps = 1\n[contract]\nmay_end = ["RestoreRefusd"]', "contract.may_end[0] is 'RestoreRefusd'"),
        ("train_steps = 1", 'train_steps = 1\n[expect]\nverdict = "BROKEN"', "expect.verdict 'BROKEN' comes with a later step"),
        ("train_steps = 1", 'train_steps = 1\n[expect]\nreach = ["StepComitted"]', "did you mean 'StepCommitted'?"),
        ("siblings = 2", "siblings = " + "9" * 5000, "is no TOML (Exceeds the limit"),
        ("siblings = 2", 'siblings = 2\ntasks = "a\\u0000b"', "cannot be read"),
        ("train_steps = 1", "train_steps = " + "[" * 100_000, "is nested too deeply"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_what_would_be_right(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert expected in refusal(written(tmp_path, SMALL.replace(old, new, 1)))


def test_a_byte_order_mark_is_read_over(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SMALL, encoding="utf-8-sig")
    assert load(str(path)).scenario.name == "small"


def test_a_name_that_no_file_can_have_is_refused() -> None:
    assert "cannot be read (File name too long)" in refusal("x" * 300 + ".toml")


def test_a_faults_file_without_a_fault_is_refused(tmp_path: Path) -> None:
    empty = written(tmp_path, "format = 1\nfaults = []\n", "faults.toml")
    assert "faults is []: it must have at least one entry" in refusal("sibling", faults=empty)


@pytest.mark.parametrize(
    ("do", "expected"),
    [
        ('{ break_stream = { instance = "controller" } }', "instance is 'controller': this job's Gym instances are gym-0"),
        ('{ break_stream = { instance = "" } }', "instance is '': this job's Gym instances are gym-0"),
        ('{ fail_call = { operation = "Prepare", to = "" } }', "to is '': this job's processes are controller"),
    ],
)
def test_a_fault_names_an_instance_or_a_process_of_the_job(tmp_path: Path, do: str, expected: str) -> None:
    fault = f'[[faults]]\nat = {{ process = "controller", event = "StepCommitted" }}\ndo = {do}\n'
    assert expected in refusal(written(tmp_path, SMALL + fault))


SERVICE = """
[[contract.effects]]
service = "mailer"
tools = ["email_send", "email_reply"]
idempotent = true
"""


def test_services_outside_the_job_are_in_the_contract_and_may_be_named_by_faults(tmp_path: Path) -> None:
    fault = """
[[faults]]
at = { process = "mailer", event = "EffectLanded" }
do = { fail_call = { operation = "effect", to = "mailer" } }
"""
    scenario = load(written(tmp_path, SMALL + SERVICE + fault)).scenario
    assert scenario.terms.contract.effects == (Service(service="mailer", tools=("email_send", "email_reply"), idempotent=True),)
    assert (scenario.faults[0].process, scenario.faults[0].arguments["operation"]) == ("mailer", "Effect")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SERVICE.replace("mailer", "gym-0"), "contract.effects[0].service is 'gym-0', which is a process of this job"),
        (SERVICE + SERVICE, "contract.effects[1].service is 'mailer', which is contract.effects[0] too"),
        (SERVICE + SERVICE.replace("mailer", "post").replace("email_send", "email_send_email"), "are answered by mailer"),
        (SERVICE.replace('["email_send", "email_reply"]', "[]"), "contract.effects[0].tools is []: it must have at least one"),
        (SERVICE.replace("mailer", "Mailer"), "contract.effects[0].service is 'Mailer'"),
    ],
)
def test_a_service_that_cannot_be_told_apart_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in refusal(written(tmp_path, SMALL + text))


def test_judges_see_the_job_of_each_life_unless_its_rollouts_mean_something_else() -> None:
    scenario = load("small").scenario

    def changed(life: int, **values: Any) -> Scenario:
        at = {"process": "job", "event": "LifeStarted", "occurrence": 1, "edge": "after", "life": life}
        fault, wrong = fault_from(at, {"config": {"set": values}}, scenario.job, "faults[0]")
        assert fault is not None and wrong == []
        return msgspec.structs.replace(scenario, faults=(fault,))

    longer = changed(2, train_steps=5)
    assert [longer.terms_in(life).job.train_steps for life in (1, 2, 3)] == [2, 5, 2]
    assert [changed(0, train_steps=5).terms_in(life).job.train_steps for life in (1, 2)] == [5, 5]
    assert longer.terms.job == scenario.job
    assert changed(2, num_prompts_per_step=3).terms_in(2).job == scenario.job


def test_an_empty_name_of_a_data_set_is_not_the_built_in_one(tmp_path: Path) -> None:
    assert "a file of task rows was expected" in refusal(written(tmp_path, SMALL.replace("[load]", '[load]\ntasks = ""')))
