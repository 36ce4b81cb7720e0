"""The status that ``restore`` and ``read`` return: TensorFlow's four assertions.

They differ from TensorFlow's in three ways. A failed assertion puts every variable back, unless one
has changed since or TensorFlow still waits for variables; ``assert_nontrivial_match`` requires a
value to match, not only an object; and values in Python lists count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from tfckpt.core.inventory import Role
from tfckpt.core.text import folded
from tfckpt.errors import StatusAssertionError
from tfckpt.live.private.tensorflow import silence
from tfckpt.live.turns import live_objects
from tfckpt.planning import Severity, Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    from tfckpt.live.apply import Undo
    from tfckpt.live.late import Late
    from tfckpt.planning import Plan, RestoreReport, Step

_OBJECTS = (Role.ITERATOR, Role.OBJECT)


class LoadStatus:
    """The status of one restore.

    Attributes:
        report: what was restored, value by value.
    """

    def __init__(
        self,
        report: RestoreReport,
        undo: Undo,
        forget: Callable[[], None],
        *,
        later: Any = None,
        late: Late | None = None,
        created: Callable[[], list[str]] | None = None,
    ) -> None:
        """The status of a restore that was carried out."""
        self.report = report
        self._undo = undo
        self._forget = forget
        self._later = later
        self._late = late
        self._created = created
        self._plain = late is None
        self._rolled_back = False

    @property
    def waiting(self) -> set[str]:
        """The names of stored values whose variables may still be created."""
        unused = (s.source for s in self.report.plan.steps if s.status is Status.UNEXPECTED)
        late = self._late
        return {name for name in unused if late is None or late.waits_for(name)}

    def assert_consumed(self) -> Self:
        """Assert that every value of the checkpoint has a variable, and every variable a value."""
        return self._assert("assert_consumed", lambda: self._missing() + self._unexpected())

    def assert_existing_objects_matched(self) -> Self:
        """Assert that every variable has a value in the checkpoint."""
        return self._assert("assert_existing_objects_matched", self._missing)

    def assert_nontrivial_match(self) -> Self:
        """Assert that at least one value was restored; ``save_counter`` does not count."""
        return self._assert("assert_nontrivial_match", self._nothing)

    def expect_partial(self) -> Self:
        """Silence TensorFlow's warnings about unused values; no save asks for them any more."""
        if self._later is not None:
            self._later.expect_partial()
        return self

    def silence(self) -> None:
        """Silence the warnings alone: a save is still refused while a value waits."""
        if self._later is not None:
            silence(self._later)

    def run_restore_ops(self, session: Any = None) -> None:
        """For graph mode, as in TensorFlow; in eager mode ``restore`` has assigned all values."""
        if self._later is not None:
            self._later.run_restore_ops(session)

    def initialize_or_restore(self, session: Any = None) -> None:
        """For graph mode, as in TensorFlow; in eager mode ``restore`` has assigned all values."""
        if self._later is not None:
            self._later.initialize_or_restore(session)

    def __repr__(self) -> str:
        return f"<LoadStatus of {self.report!r}>"

    def __getattr__(self, name: str) -> Any:
        # TensorFlow's own tools use private attributes of its status.
        if name.startswith("__") or self.__dict__.get("_later") is None:
            message = f"'LoadStatus' object has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=self)  # Python asks what was meant
        return getattr(self._later, name)

    def _assert(self, name: str, wrong: Callable[[], list[str]]) -> Self:
        with live_objects():
            return self._asserted(name, wrong)

    def _asserted(self, name: str, wrong: Callable[[], list[str]]) -> Self:
        if self._rolled_back:
            raise StatusAssertionError(f"{name}: an earlier assertion failed and undid the restore")
        problems = []
        if self._plain:
            try:
                getattr(self._later, name)()
            except AssertionError as error:
                problems = [str(error)]
        if not self._plain or name == "assert_nontrivial_match":
            problems = problems or wrong()
        if problems:
            self._fail(name, problems)
        created = self._created() if self._created and name != "assert_nontrivial_match" else []
        if created:
            texts = [
                f"{value}: created after the restore, and not in the checkpoint"
                for value in created
            ]
            self._raise(name, "the restored values were kept", texts)
        return self

    def _fail(self, name: str, problems: list[str]) -> None:
        """Raise, after putting values back unless TensorFlow may still assign the rest."""
        waiting = self._later is not None and any(
            step.status is Status.UNEXPECTED for step in self.report.plan.steps
        )
        if waiting:
            outcome = "values still wait for their variables, so nothing was put back"
        else:
            outcome = self._put_back()
        self._raise(name, outcome, problems)

    def _raise(self, name: str, outcome: str, problems: list[str]) -> NoReturn:
        head = f"{name} failed on {self.report.path}; {outcome}"
        raise StatusAssertionError("\n  ".join([head, *folded(problems, ": see .report")]))

    def _put_back(self) -> str:
        self._rolled_back = True
        if self._late is not None:
            self._late.stop()
        if self._undo.take_back():
            self._forget()
            return "every variable has its old value again"
        return "variables have changed since the restore, so none was put back"

    def _missing(self) -> list[str]:
        # What could not be saved may be missing.
        unsaved = {Role.METRIC, Role.VOCABULARY} | (set() if self._complete else {Role.SEED})
        left_out = self._late.left_out if self._late is not None else ()
        return [
            f"{step.name}: {step.reason}"
            for step in self.report.plan.steps
            if (step.status is Status.MISSING or (step.status is Status.RESET and not step.stored))
            and step.entry.role not in unsaved
            and not (step.name in left_out and step.entry.role in _OBJECTS)
        ]

    def _unexpected(self) -> list[str]:
        steps = [step for step in self.report.plan.steps if _left_over(step)]
        created = self._late.created() if steps and self._late is not None else set()
        return [f"{step.source}: {step.reason}" for step in steps if step.source not in created]

    def _nothing(self) -> list[str]:
        plan = self.report.plan
        if any(step.name != "save_counter" for step in plan.assignments):
            return []
        if self._later is not None and any(step.status is Status.UNEXPECTED for step in plan.steps):
            return []  # TensorFlow waits for variables of objects that matched
        return ["no value was restored: only the root object matched"]

    @property
    def _complete(self) -> bool:
        return all(
            step.severity is not Severity.NOTE
            for step in self.report.plan.steps
            if step.status is Status.MISSING and step.entry.role is Role.SEED
        )


def may_fail_an_assertion(plan: Plan) -> bool:
    """Whether an assertion on the status could fail, and so need the old values."""
    return any(step.status is Status.MISSING or _left_over(step) for step in plan.steps)


def _left_over(step: Step) -> bool:
    if step.entry.role is Role.METRIC:
        return False
    if step.status is Status.UNEXPECTED:
        return True
    return step.status is Status.EXCLUDED and step.source == "save_counter" and not step.name
