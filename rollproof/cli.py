"""``rollproof``: checks whose packages it would run, then hands over to the commands. Every error is one line."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence

from rollproof.doctor import strangers

USAGE = 2
INTERRUPTED = 130  # what the command line library makes of an interrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 held, 1 broken, 2 wrong usage or input, 3 unknown."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: nothing half-written stays behind
    try:
        return _main(words)
    except KeyboardInterrupt:
        return refuse("interrupted")


def _main(words: list[str]) -> int:
    wrong = strangers()
    if wrong and words[:1] != ["doctor"]:
        return refuse("; ".join(wrong))
    if wrong:
        return _doctor_alone(words)
    from rollproof.commands import app
    from rollproof.showing import forget_stdout, reader_may_leave
    from scenarios.model import InputError

    code: object = 0
    try:
        with reader_may_leave():
            code = app(args=words, prog_name="rollproof", standalone_mode=False)
    except InputError as error:
        return refuse(str(error))
    except OSError as error:  # the disk is full, a folder went away
        forget_stdout()
        return refuse(
            f"{error.filename or 'the output'}: cannot be read or written ({error.strerror}): make room, or name another"
        )
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # a command that needs another word: its help is the answer
            print(str(error), file=sys.stderr)
            return USAGE
        if hasattr(error, "format_message"):  # a usage error of the command line library
            context = getattr(error, "ctx", None)
            command = context.command_path if context is not None else "rollproof"
            return refuse(f"{error.format_message().rstrip('.')}: {command} --help lists what there is")
        if type(error).__name__ == "Abort":
            return refuse("interrupted")
        raise
    if code == INTERRUPTED:
        return refuse("interrupted")
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
