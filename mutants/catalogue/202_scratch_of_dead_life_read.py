"""202: what a dead life left behind comes back."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=202,
    name="scratch-of-dead-life-read",
    area="M",
    fault="A Gym instance revives the sessions that the life before it left in its scratch.",
    edits=(
        Edit(
            scope="protocol.gym.instance.GymInstance.revive",
            find="folder = journal_folder(self.rt)",
            put="""
folder = journal_folder(self.rt).replace(f"life-{self.rt.life}/", f"life-{max(1, self.rt.life - 1)}/")
""",
        ),
    ),
    scenario="workplace",
    judges=("I1", "I22"),
)
