"""Tasks of the simulator and what they wait for: the two sides of one resumption.

When a failure counts as unjoined: at the moment the task fails, nobody waits for it (``join``, ``all_of``), it was
not cancelled, and nobody watches it. Somebody watches it once a ``first_of`` that held its ``join`` was won by
another wait; a joiner that is cancelled stops watching. A failure that has a joiner, or comes later, is the
joiner's to raise. A cancelled task joins as None: the core never has to catch ``Cancelled``.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from protocol.runtime import Cancelled, Fenced

if TYPE_CHECKING:
    from sim.kernel import Kernel

IDLE, PENDING, OVER = 0, 1, 2  # of a Wait: not begun, somebody waits, its value or error is there


class Waiter:
    """Who is told that a wait is over: a task, or a wait made of others."""

    __slots__ = ()

    def wake(self, wait: Wait, direct: bool) -> None:
        """``direct``: the running step is the resumption itself (a timer popped)."""
        raise NotImplementedError

    def owner(self) -> str:
        """The process that this waits for; '' if it is nobody's any more."""
        return ""


class Wait(Waiter):
    """Something a task can await. It begins when it is awaited (or held by a ``first_of``).

    Withdrawn, it is as if it had never begun; what it had already taken is given back. One waiter at a time.
    """

    __slots__ = ("error", "kernel", "state", "value", "waiter")

    def __init__(self, kernel: Kernel) -> None:
        if kernel.fenced:
            raise Fenced
        self.kernel = kernel
        self.state = IDLE
        self.value: Any = None
        self.error: BaseException | None = None
        self.waiter: Waiter | None = None

    def __await__(self) -> Generator[Any, None, Any]:
        kernel = self.kernel
        if kernel.fenced:
            raise Fenced
        if self.state == IDLE:
            self.begin()
        if self.state != OVER:
            task = kernel.current
            assert self.waiter is None, f"two tasks await {self.describe()}"
            assert task is not None, "awaited outside a task"
            self.state = PENDING
            self.waiter = task
            task.wait = self
            yield self
        if self.error is not None:
            raise self.error
        return self.value

    def hold(self, waiter: Waiter) -> bool:
        """Begin on behalf of a composed wait; True if it is over at once."""
        if self.state == IDLE:
            self.begin()
        if self.state == OVER:
            return True
        assert self.waiter is None, f"two tasks await {self.describe()}"
        self.state = PENDING
        self.waiter = waiter
        return False

    def settle(self, value: Any = None, error: BaseException | None = None, direct: bool = False) -> None:
        """It is over: keep the outcome and tell the waiter."""
        self.value = value
        self.error = error
        self.state = OVER
        waiter = self.waiter
        if waiter is not None:
            self.waiter = None
            waiter.wake(self, direct)

    def withdraw(self) -> None:
        """Nobody waits any more, or the one who did will never be handed what came."""
        if self.state == PENDING:
            self.state = IDLE
            self.waiter = None
            self.detach()
        elif self.state == OVER:
            self.give_back()

    def lose(self) -> None:
        """Withdrawn because another wait of the same ``first_of`` won."""
        self.withdraw()

    def begin(self) -> None:
        """Register, or set ``state`` to OVER with the value if there is nothing to wait for."""

    def detach(self) -> None:
        """Undo ``begin``."""

    def give_back(self) -> None:
        """Return what the undelivered outcome took."""

    def owner(self) -> str:
        return self.waiter.owner() if self.waiter is not None else ""

    def describe(self) -> str:
        return "something"


class Join(Wait):
    __slots__ = ("task",)

    def __init__(self, kernel: Kernel, task: Task) -> None:
        super().__init__(kernel)
        self.task = task

    def begin(self) -> None:
        if self.task.done:
            self.value, self.error, self.state = self.task.result, self.task.error, OVER
        else:
            self.task.joiners.append(self)

    def finished(self, task: Task) -> None:
        self.settle(task.result, task.error)

    def detach(self) -> None:
        self.task.joiners.remove(self)
        self.task.watched = False

    def lose(self) -> None:
        self.withdraw()
        self.task.watched = True

    def describe(self) -> str:
        return f"the end of task {self.task.name!r}"


class AllOf(Wait):
    """Joins every task at once, so that none of their failures is unjoined."""

    __slots__ = ("missing", "tasks")

    def __init__(self, kernel: Kernel, tasks: list[Task]) -> None:
        super().__init__(kernel)
        self.tasks = tasks
        self.missing = 0

    def begin(self) -> None:
        self.missing = 0
        for task in self.tasks:
            if not task.done:
                task.joiners.append(self)
                self.missing += 1
        if not self.missing:
            self.value, self.error = self._outcome()
            self.state = OVER

    def finished(self, task: Task) -> None:
        self.missing -= 1
        if not self.missing:
            value, error = self._outcome()
            self.settle(value, error)

    def _outcome(self) -> tuple[Any, BaseException | None]:
        for task in self.tasks:
            if task.error is not None:
                return None, task.error
        return [task.result for task in self.tasks], None

    def detach(self) -> None:
        for task in self.tasks:
            if not task.done:
                task.joiners.remove(self)
                task.watched = False

    def lose(self) -> None:
        self.withdraw()
        for task in self.tasks:
            task.watched = True

    def describe(self) -> str:
        return "the end of tasks " + ", ".join(repr(task.name) for task in self.tasks if not task.done)


class Task(Waiter):
    """A coroutine of one process that the kernel resumes."""

    __slots__ = (
        "cancelled",
        "cancelling",
        "coroutine",
        "done",
        "error",
        "joiners",
        "kernel",
        "name",
        "process",
        "result",
        "scheduled",
        "wait",
        "watched",
    )

    def __init__(self, kernel: Kernel, coroutine: Coroutine[Any, Any, Any], name: str, process: str) -> None:
        self.kernel = kernel
        self.coroutine = coroutine
        self.name = name
        self.process = process
        self.wait: Wait | None = None
        self.joiners: list[Join | AllOf] = []
        self.done = False
        self.result: Any = None
        self.error: Exception | None = None
        self.cancelling = False  # Cancelled is thrown at the next resumption
        self.cancelled = False  # it was asked for at any time
        self.watched = False
        self.scheduled = True
        kernel.tasks[self] = None
        kernel.at(0.0, self.resume)

    def join(self) -> Join:
        return Join(self.kernel, self)

    def cancel(self) -> None:
        """Cancelled is raised at the await where the task stands; what that await had been given goes back."""
        if self.done or self.cancelling or self.kernel.fenced:
            return
        self.cancelling = self.cancelled = True
        if self.wait is not None:
            self.wait.withdraw()
            self.wait = None
        if self is not self.kernel.current and not self.scheduled:
            self.scheduled = True
            self.kernel.at(0.0, self.resume)

    def wake(self, wait: Wait, direct: bool) -> None:
        if direct:
            self.resume(None)
        else:
            self.scheduled = True
            self.kernel.at(0.0, self.resume)

    def resume(self, landing: object) -> None:
        """One step: run to the next await that has to wait."""
        kernel = self.kernel
        kernel.current = self
        self.scheduled = False
        self.wait = None
        if kernel.timed:
            began, judged = perf_counter_ns(), kernel.judge_ns
        try:
            if self.cancelling:
                self.cancelling = False
                waits = self.coroutine.throw(Cancelled())
            else:
                waits = self.coroutine.send(None)
        except StopIteration as end:
            self._finish(end.value, None)
        except Cancelled:
            self._finish(None, None)
        except Exception as error:
            self._finish(None, error)
        else:
            if waits is not self.wait:
                self.coroutine.close()
                self._finish(None, TypeError(f"task {self.name!r} awaited {waits!r}, which is no wait of this runtime"))
            elif self.cancelling and self.wait is not None:  # it cancelled itself
                self.wait.withdraw()
                self.wait = None
                self.scheduled = True
                kernel.at(0.0, self.resume)
        if kernel.timed:
            kernel.core_ns += perf_counter_ns() - began - (kernel.judge_ns - judged)
        kernel.current = None

    def _finish(self, result: Any, error: Exception | None) -> None:
        kernel = self.kernel
        self.done = True
        self.result = result
        self.error = error
        del kernel.tasks[self]
        if self is kernel.main:
            kernel.ended = True
        if self.joiners:
            joiners, self.joiners = self.joiners, []
            for joiner in joiners:
                joiner.finished(self)
        elif error is not None and not self.cancelled and not self.watched and kernel.failure is None:
            kernel.failure = (self, error)

    def close(self) -> None:
        """Close the coroutine of a dead task; the fence is up, so its ``finally`` blocks can do nothing."""
        self.done = True
        self.kernel.current = self
        for _ in range(3):  # a coroutine that yields once more from a ``finally`` is closed again
            try:
                self.coroutine.close()
            except (Fenced, Cancelled, Exception):
                continue
            break
        self.kernel.current = None

    def owner(self) -> str:
        return self.process

    @property
    def place(self) -> str:
        """The function where it stands."""
        innermost = self.coroutine
        while (inner := getattr(innermost, "cr_await", None)) is not None and hasattr(inner, "cr_code"):
            innermost = inner
        code = getattr(innermost, "cr_code", None)
        return code.co_qualname if code is not None else "its beginning"
