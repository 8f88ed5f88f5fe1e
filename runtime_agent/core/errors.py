"""Everything that the agent can refuse or fail at, as one tree.

::

    RuntimeAgentError
    ├── AppendError                 an append was refused; nothing of it was written
    │   ├── EventInvalidError       breaks a bound or a type of the contract
    │   ├── WrongSequenceError      the first event would not get the expected sequence
    │   ├── AppendIdReusedError     the append id names an append of other content
    │   ├── RunFinalError           the run's final event is written already
    │   ├── LogFullError            the local log has reached its size
    │   └── SequenceExhaustedError  2^63-1 is reached; nothing wraps
    ├── LogError                    the local log cannot be used, now or at all
    │   ├── LogStorageError         disk full or I/O error; nothing was written
    │   ├── LogOutcomeUnknownError  a COMMIT failed: written or not, nobody knows
    │   ├── LogOwnerLostError       another process took the log over: stop
    │   ├── LogMissingError         there is no log in the folder
    │   ├── LogForeignError         the file is not a log of ours, or not as we made it
    │   ├── LogNewerError           a newer version of the agent has written it
    │   ├── LogStoppedError         the agent is stopping
    │   └── LogQueueFullError       too much waits for the log at this moment
    ├── AlreadyRunningError         another process holds the data folder
    ├── IdentityPinnedError         the folder belongs to another runtime or hub project
    ├── HubGenerationChangedError   an acknowledgement under another hub generation
    ├── TakeInRefusedError          events from the hub do not continue the run
    ├── RunUnknownError             no such run in the log
    ├── RunNotQuarantinedError      release or drop of a run that is not quarantined
    ├── RunExistsError              the new run of a release exists
    ├── NothingToCopyError          a release to a new run has no event to copy
    ├── LineRefusedError            a line of an imported file is refused
    ├── AgentUnreachableError       the agent's socket does not answer
    ├── LeaseError                  a lease cannot be had or is lost; ``lease_errors.py`` draws its branch
    ├── JournalError                a call about the journal was refused; see ``journal_errors.py``
    └── UsageError                  a setting or argument is wrong

A leaf is a cause that a caller can act on; its fields are the facts, ``str()`` is the sentence for
people, ``hint`` says what an operator can do.
"""

from dataclasses import dataclass


@dataclass(eq=False)
class RuntimeAgentError(Exception):
    """Base of everything that the agent refuses or fails at."""

    @property
    def sentence(self) -> str:
        """What happened, for people."""
        raise NotImplementedError

    @property
    def hint(self) -> str:
        """What an operator can do about it; "" where there is nothing to say."""
        return ""

    def __str__(self) -> str:
        return self.sentence


@dataclass(eq=False)
class AppendError(RuntimeAgentError):
    """An append was refused; nothing of it was written."""


@dataclass(eq=False)
class EventInvalidError(AppendError):
    """A field breaks a bound or a type; ``fault`` completes "<field> …"."""

    field: str
    fault: str

    @property
    def sentence(self) -> str:
        return f"{self.field} {self.fault}"


@dataclass(eq=False)
class WrongSequenceError(AppendError):
    """The first event would get ``next_sequence``, not ``expected_sequence``."""

    expected_sequence: int
    next_sequence: int

    @property
    def sentence(self) -> str:
        return f"the next sequence of the run is {self.next_sequence}, not {self.expected_sequence}"


@dataclass(eq=False)
class AppendIdReusedError(AppendError):
    """The append id names an earlier append of other content."""

    append_id: str
    first_sequence: int
    last_sequence: int

    @property
    def sentence(self) -> str:
        return (
            f"append id {self.append_id!r} was used in this run for other content "
            f"(sequence {self.first_sequence} to {self.last_sequence})"
        )


@dataclass(eq=False)
class RunFinalError(AppendError):
    """The run's final event is written; nothing comes after it."""

    run_id: str
    final_sequence: int

    @property
    def sentence(self) -> str:
        return f"run {self.run_id!r} ended with its final event at sequence {self.final_sequence}"


@dataclass(eq=False)
class LogFullError(AppendError):
    """The local log has reached its largest size."""

    log_bytes: int
    log_bytes_max: int

    @property
    def sentence(self) -> str:
        return (
            f"the local log is full: it has {self.log_bytes} bytes, at most {self.log_bytes_max} are allowed"
        )

    @property
    def hint(self) -> str:
        return "connect the agent to its hub so that it can sync, or raise the log size"


@dataclass(eq=False)
class SequenceExhaustedError(AppendError):
    """A sequence or position has reached 2^63-1."""

    what: str

    @property
    def sentence(self) -> str:
        return f"the {self.what} has reached 2^63-1 and does not wrap"


@dataclass(eq=False)
class LogError(RuntimeAgentError):
    """The local log cannot be used, now or at all."""


@dataclass(eq=False)
class LogStorageError(LogError):
    """The disk is full or failed; nothing of the call was written."""

    path: str
    cause: str

    @property
    def sentence(self) -> str:
        return f"the local log {self.path} cannot be used: {self.cause}; nothing was written"

    @property
    def hint(self) -> str:
        return "free space or mend the disk; the agent goes on by itself"


@dataclass(eq=False)
class LogOutcomeUnknownError(LogError):
    """A COMMIT failed: nobody knows whether the call was written."""

    path: str
    cause: str

    @property
    def sentence(self) -> str:
        return (
            f"writing to the local log {self.path} failed at the end ({self.cause}): it may be written or not"
        )

    @property
    def hint(self) -> str:
        return "append again with the same append id: what is written is answered and not doubled"


@dataclass(eq=False)
class LogOwnerLostError(LogError):
    """Another process has taken the log over; this one must stop."""

    path: str

    @property
    def sentence(self) -> str:
        return f"another process has taken over {self.path}; this one stops"


@dataclass(eq=False)
class LogMissingError(LogError):
    """There is no log in the data folder."""

    folder: str

    @property
    def sentence(self) -> str:
        return f"there is no local log in {self.folder}"

    @property
    def hint(self) -> str:
        return "give the agent's data folder with --data"


@dataclass(eq=False)
class LogForeignError(LogError):
    """The file is not a log of ours, or not as we made it; ``fault`` completes "<path> …"."""

    path: str
    fault: str

    @property
    def sentence(self) -> str:
        return f"{self.path} {self.fault}; it was not touched"


@dataclass(eq=False)
class LogNewerError(LogError):
    """A newer version of the agent has written the log."""

    path: str
    version: int
    known_version: int

    @property
    def sentence(self) -> str:
        return (
            f"{self.path} has schema version {self.version}, this agent knows {self.known_version} "
            "at most; it was not touched"
        )

    @property
    def hint(self) -> str:
        return "install the newer version of the agent"


@dataclass(eq=False)
class LogStoppedError(LogError):
    """The agent is stopping; nothing of the call was written."""

    @property
    def sentence(self) -> str:
        return "the agent is stopping; nothing was written"


@dataclass(eq=False)
class LogQueueFullError(LogError):
    """More waits for the log than is allowed; nothing of the call was written."""

    @property
    def sentence(self) -> str:
        return "too much waits for the local log at this moment; nothing was written"

    @property
    def hint(self) -> str:
        return "append again a little later"


@dataclass(eq=False)
class AlreadyRunningError(RuntimeAgentError):
    """Another process holds the data folder; pid 0 where it is not known."""

    folder: str
    role: str
    pid: int
    host: str

    @property
    def sentence(self) -> str:
        who = f"pid {self.pid}" if self.pid else "pid not known"
        where = f" on {self.host}" if self.host else ""
        return f"already running ({who}{where}): {self.role or 'a process'} holds {self.folder}"

    @property
    def hint(self) -> str:
        return "stop it first, or give another folder with --data"


@dataclass(eq=False)
class IdentityPinnedError(RuntimeAgentError):
    """The data folder was started with another hub project or runtime id."""

    folder: str
    field: str
    pinned: str
    given: str

    @property
    def sentence(self) -> str:
        return f"{self.folder} belongs to {self.field} {self.pinned!r}, not {self.given!r}"

    @property
    def hint(self) -> str:
        return "each runtime needs a data folder of its own; give another one with --data"


@dataclass(eq=False)
class HubGenerationChangedError(RuntimeAgentError):
    """An acknowledgement came under another hub generation than the stored one."""

    stored: str
    given: str

    @property
    def sentence(self) -> str:
        return f"the hub generation is {self.given!r}, the log was reconciled with {self.stored!r}"


@dataclass(eq=False)
class TakeInRefusedError(RuntimeAgentError):
    """Events from the hub do not continue the run; ``fault`` is the sentence's end."""

    run_id: str
    fault: str

    @property
    def sentence(self) -> str:
        return f"events from the hub were not taken into run {self.run_id!r}: {self.fault}"


@dataclass(eq=False)
class RunUnknownError(RuntimeAgentError):
    """The log has no such run."""

    project_id: str
    run_id: str

    @property
    def sentence(self) -> str:
        return f"the local log has no run {self.run_id!r} of project {self.project_id!r}"


@dataclass(eq=False)
class RunNotQuarantinedError(RuntimeAgentError):
    """Only a quarantined run can be released or dropped."""

    project_id: str
    run_id: str

    @property
    def sentence(self) -> str:
        return f"run {self.run_id!r} of project {self.project_id!r} is not quarantined"


@dataclass(eq=False)
class RunExistsError(RuntimeAgentError):
    """The new run of a release exists in the log already."""

    project_id: str
    run_id: str

    @property
    def sentence(self) -> str:
        return f"run {self.run_id!r} of project {self.project_id!r} exists already; name a new one"


@dataclass(eq=False)
class NothingToCopyError(RuntimeAgentError):
    """The hub, or an earlier copy, has all events of the run."""

    run_id: str
    sequence: int

    @property
    def sentence(self) -> str:
        return (
            f"run {self.run_id!r} has nothing to copy: all up to sequence {self.sequence} "
            "is on the hub or was copied"
        )


@dataclass(eq=False)
class AgentUnreachableError(RuntimeAgentError):
    """The agent's socket does not answer, or the call broke off."""

    socket: str
    cause: str

    @property
    def sentence(self) -> str:
        return f"the agent at {self.socket} does not answer: {self.cause}"


@dataclass(eq=False)
class LineRefusedError(RuntimeAgentError):
    """A line of an imported file is refused; ``fault`` completes "line N …"."""

    file: str
    line_number: int
    fault: str

    @property
    def sentence(self) -> str:
        return f"{self.file}: line {self.line_number} {self.fault}"

    @property
    def hint(self) -> str:
        return "the lines before it are in the local log; what is in the log is never changed"


@dataclass(eq=False)
class UsageError(RuntimeAgentError):
    """A setting or argument is wrong; ``fault`` is the whole sentence."""

    fault: str

    @property
    def sentence(self) -> str:
        return self.fault
