from itertools import product

import pytest

from protocol.errors import IllegalStep
from protocol.gym.phases import LEGAL, Move, Phase, Standing, advance


def standing(phase: Phase) -> Standing:
    return Standing(phase, None if phase is Phase.IDLE else "k1")


@pytest.mark.parametrize(("phase", "move"), list(LEGAL))
def test_a_legal_move_reaches_the_phase_of_the_table(phase: Phase, move: Move) -> None:
    after = advance(standing(phase), move, "k1")
    assert after.phase is LEGAL[phase, move]
    assert after.checkpoint == (None if after.phase is Phase.IDLE else "k1")


@pytest.mark.parametrize(("phase", "move"), [pair for pair in product(Phase, Move) if pair not in LEGAL])
def test_every_other_move_is_refused(phase: Phase, move: Move) -> None:
    with pytest.raises(IllegalStep):
        advance(standing(phase), move, "k1")


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.IDLE])
def test_another_checkpoint_cannot_resume(phase: Phase) -> None:
    with pytest.raises(IllegalStep):
        advance(standing(phase), Move.RESUME, "k2")


def test_the_path_of_one_checkpoint() -> None:
    at = Standing()
    path = []
    for move in (Move.PREPARE, Move.READY, Move.COMMIT, Move.RESUME):
        at = advance(at, move, "k1")
        path.append(at.phase.value)
    assert path == ["preparing", "prepared", "committed", "idle"]
    assert at == Standing()
