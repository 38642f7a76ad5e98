"""``rollproof``: checks whose packages it would run, then hands over to the commands. Every error is one line."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Sequence

from rollproof.doctor import strangers

USAGE = 2
PLACE_MAX = 200  # characters of a path in a message
INTERRUPTED = 130  # what the command line library makes of an interrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 held, 1 broken, 2 wrong usage or input, 3 unknown."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _interrupt)
        signal.signal(signal.SIGTERM, _interrupt)  # as Ctrl-C: nothing half-written stays behind
    try:
        return _main(words)
    except KeyboardInterrupt:
        return refuse("interrupted")


def _interrupt(number: int, frame: object) -> None:
    """The run under way is given up with all its coroutines: what Python says of each one as it falls helps nobody."""
    sys.unraisablehook = lambda _: None
    warnings.filterwarnings("ignore", message="coroutine .* was never awaited", category=RuntimeWarning)
    raise KeyboardInterrupt


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
        place = str(error.filename or "the output")
        place = place if len(place) <= PLACE_MAX else place[: PLACE_MAX - 3] + "..."
        return refuse(f"{place}: cannot be read or written ({error.strerror}): make room, or name another")
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

    try:
        print(json.dumps(examine(), indent=None if "--json" in words else 1), flush=True)
    except BrokenPipeError:  # the reader went away: what is still buffered must not fail again at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return USAGE


def run() -> None:
    """For ``python -m rollproof``."""
    sys.exit(main())
