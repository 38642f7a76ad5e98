"""``rollproof``: checks whose packages it would run, then hands over to the commands. Every error is one line."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rollproof.doctor import strangers

USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 held, 1 broken, 2 wrong usage or input, 3 unknown."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    wrong = strangers()
    if wrong and words[:1] != ["doctor"]:
        return refuse("; ".join(wrong))
    if wrong:
        return _doctor_alone(words)
    from rollproof.commands import app
    from scenarios.model import InputError

    try:
        code = app(args=words, prog_name="rollproof", standalone_mode=False)
    except InputError as error:
        return refuse(str(error))
    except KeyboardInterrupt:
        return refuse("interrupted")
    except BrokenPipeError:  # the reader went away: head, a closed pager
        return 0
    except Exception as error:
        if hasattr(error, "format_message"):  # a usage error of the command line library
            return refuse(f"{error.format_message()} (rollproof --help lists what there is)")
        if type(error).__name__ == "Abort":
            return refuse("interrupted")
        raise
    return code if isinstance(code, int) else 0


def refuse(message: str) -> int:
    """Say what is wrong on one line."""
    print("rollproof: error: " + " ".join(message.split()), file=sys.stderr)
    return USAGE


def _doctor_alone(words: Sequence[str]) -> int:
    import json

    from rollproof.doctor import examine

    print(json.dumps(examine(), indent=None if "--json" in words else 1))
    return USAGE


def run() -> None:
    """For ``python -m rollproof``."""
    sys.exit(main())
