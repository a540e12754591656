"""Where the events of a run are kept: in an SQLite file, or on a PostgreSQL server.

A store knows nothing of loops, models or settings. It keeps plain events in the order in which they
were written, and any number of threads, processes and machines may write to one run. In SQL, a run
is two tables, which every tool for databases can read:

``event``
    One row per event, with ``seq``, ``kind``, ``query``, ``at``, ``by``, ``body`` (JSON) and
    ``checksum``. Row 0, of the kind ``"begun"``, has the header of the run as its body. Rows are
    only ever added.
``head``
    One row with the version of this format, and ``seq`` and ``checksum`` of the last event. It
    changes in the transaction that adds events, so that lost last rows are noticed. (It is not in
    row 0, because the header may be long, and a changed row is written as a whole.)

The checksum of a row covers its columns and the checksum of the row before. A row that was changed,
moved or lost therefore does not go unnoticed, wherever it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import sqlite3
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

FORMAT = 1
"""The version of the tables that is written and read."""

_APPLICATION = int.from_bytes(b"BoBa")  # in bytes 68 to 71 of an SQLite file: whose it is
_SELECT = "select seq, kind, query, at, by, body, checksum from event"
_USE_LOG = "pragma journal_mode = wal"
_JSON = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))
_HOST = socket.gethostname()


class StorageError(RuntimeError):
    """A run cannot be read: it is damaged, is not a run, or is out of reach."""


class StorageWriteError(StorageError):
    """An event could not be written; the message says whether it may be recorded all the same."""


class TurnTimeout(StorageError):  # noqa: N818 (as queue.Empty: it says what happened)
    """Somebody else had the turn to choose for longer than the caller wanted to wait.

    Args:
        location: Where the run is.
        timeout: How many seconds the caller waited.
        holder: Who has the turn.
    """

    def __init__(self, location: str, timeout: float | None, holder: str) -> None:
        super().__init__(
            f"{location}: after {timeout} s, the turn to choose is still with {holder}. Wait "
            "longer (timeout=), or end who has it: the turn ends with its process."
        )


@dataclass(frozen=True)
class Event:
    """What happened: one row of the table.

    Attributes:
        seq: Its number, from 1 and without gaps.
        kind: What happened, such as ``"asked"`` or ``"told"``.
        query: The id of the query that it is about.
        at: Seconds since the epoch, or whatever time the caller gave.
        by: Who wrote it, as ``"4242@hostname"``.
        body: The rest, as plain values of JSON.
    """

    seq: int
    kind: str
    query: int
    at: float
    by: str
    body: Mapping[str, Any]


@dataclass(frozen=True)
class NewEvent:
    """What a caller wants written; see :class:`Event`. Without ``at``, the time is now."""

    kind: str
    query: int
    body: Mapping[str, Any]
    at: float | None = None


class Store(ABC):
    """The events of one run, in SQL; subclasses say how to begin, lock and connect.

    All methods may be called from any thread, and also in a forked child, which is another process
    with a connection of its own. The threads of a process use one connection in turn. After an
    error it is closed, which rolls back whatever was open, and the next call connects again.

    Attributes:
        location: Where the run is, for messages.
        header: Plain values that were written when the run was begun.
        now: The time, by the clock of the store, when it was last read.
    """

    location: str
    header: Mapping[str, Any]
    now: float

    _error: type[Exception]  # the base of all errors of the driver
    _placeholder: str
    _to_read: str  # begins a transaction that sees one state of the run
    _to_write: str  # begins one in which nobody else writes ...
    _lock_head: str  # ... from when it reads the head at the latest
    _clock: str  # seconds since the epoch
    _remedy: str
    _row: int  # that is being read, for messages

    def __init__(self, location: str) -> None:
        self.location = location
        self._connection: Any = None
        self._descriptors: set[int] = set()  # that keep a turn, or wait for one
        self._lock = threading.RLock()  # held during a transaction, but not during a turn
        with _fork_lock:
            _stores.add(self)

    @abstractmethod
    def begin(self, header: Mapping[str, Any]) -> None:
        """Begin the run unless it is there: as a whole or not at all, and by one process only."""

    @abstractmethod
    def _connect(self) -> Any:
        """Return a new connection."""

    @abstractmethod
    def _join_queue(self) -> tuple[Any, int]:
        """Return a ticket, which can wait for a turn and keep it, and its descriptor."""

    @abstractmethod
    def _wait(self, ticket: Any, timeout: float | None) -> bool:
        """Wait for the turn, and return whether it came in time."""

    @abstractmethod
    def _holder(self, ticket: Any) -> str:
        """Return who has the turn that the ticket waited for."""

    @abstractmethod
    def _leave(self, ticket: Any) -> None:
        """Give the turn or the place in the queue back."""

    def open(self, check: Callable[[Mapping[str, Any]], None]) -> None:
        """Read the header and check it.

        Raises:
            StorageError: If this is not a run that can be read.
        """
        with self._transaction(self._to_read, StorageError), self._reading():
            self._row = 0
            (version,) = self._execute("select format from head").fetchone()
            if version != FORMAT:
                raise StorageError(
                    f"{self.location} has format {version}, but this version of botorch_bandits "
                    f"only knows format {FORMAT}. Use the version that wrote it, or a newer one."
                )
            *row, checksum = self._execute(f"{_SELECT} where seq = 0").fetchone()
            if checksum != _chained("", row):
                raise ValueError("its checksum does not fit")
            self.header = json.loads(row[-1])
        check(self.header)

    def news(self, after: int = 0) -> list[Event]:
        """Return the events after the one with this number, in order.

        Raises:
            StorageError: If they cannot be read, or differ from what was written.
        """
        with self._transaction(self._to_read, StorageError):
            return self._read(after)[0]

    def write(
        self, after: int, compose: Callable[[list[Event]], Sequence[NewEvent]]
    ) -> list[Event]:
        """Write events that depend on what others have written.

        Args:
            after: The number of the last event that the caller knows.
            compose: From the events after that one, makes those to be written. Nobody else writes
                between the two, so it must be quick. If it raises an error, nothing is written.

        Returns:
            All events after ``after``, with the new ones at the end; they are on disk.

        Raises:
            StorageWriteError: If they could not be written, or if it is unknown whether they were.
            ValueError: If the body of an event does not come back from JSON as it is.
        """
        with self._transaction(self._to_write, StorageWriteError):
            events, checksum = self._read(after, self._lock_head)
            for new in compose(list(events)):
                at = self.now if new.at is None else float(new.at)
                seq, query = after + len(events) + 1, int(new.query)
                event = Event(seq, new.kind, query, at, myself(), new.body)
                checksum = self._append(checksum, event)
                events.append(event)
            return events

    @contextmanager
    def turn(self, timeout: float | None = None) -> Iterator[None]:
        """Wait for the turn to choose, which one caller has at a time, and have it inside.

        It ends with the process that has it, however that ends.

        Args:
            timeout: For how many seconds to wait at most; without limit if omitted.

        Raises:
            TurnTimeout: If it is not free in time; the message names who has it.
        """
        with self._reporting(StorageError, OSError), self._lock:
            ticket, descriptor = self._join_queue()
            self._descriptors.add(descriptor)
        try:
            with self._reporting(StorageError):
                if not self._wait(ticket, timeout):
                    raise TurnTimeout(self.location, timeout, self._holder(ticket))
            yield
        finally:
            with self._lock:
                if descriptor in self._descriptors:  # not so in a child that was forked inside
                    self._descriptors.remove(descriptor)
                    self._leave(ticket)

    def close(self) -> None:
        """Close the connection; a store that is used again makes another one."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextmanager
    def _transaction(self, begin: str, failure: type[StorageError]) -> Iterator[None]:
        with self._lock:
            try:
                with self._reporting(failure, outcome="Nothing was written."):
                    self._connection = self._connection or self._connect()
                    self._execute(begin)
                    yield
                with self._reporting(failure, outcome="Read the run to see what was written."):
                    self._execute("commit")
            except BaseException:
                self.close()
                raise

    @contextmanager
    def _reporting(
        self, failure: type[StorageError], *others: type[Exception], outcome: str = ""
    ) -> Iterator[None]:
        try:
            yield
        except (self._error, *others) as error:
            raise failure(f"{self.location}: {error}. {outcome} {self._remedy}") from error

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (self._error, TypeError, ValueError) as error:
            raise StorageError(
                f"{self.location} cannot be read at row {self._row} of the table event: {error}. "
                f"Nothing was written. {self._remedy}"
            ) from error

    def _execute(self, statement: str, parameters: Sequence[Any] = ()) -> Any:
        return self._connection.execute(statement.replace("?", self._placeholder), parameters)

    def _read(self, after: int, lock: str = "") -> tuple[list[Event], str]:
        """Return the events after one, and the checksum of the last row; note the time."""
        events, checksum = [], ""
        with self._reading():
            self._row = after
            *head, self.now = self._execute(
                f"select seq, checksum, {self._clock} from head{lock}"
            ).fetchone()
            rows = self._execute(f"{_SELECT} where seq >= ? order by seq", (after,))
            for self._row, (*row, stated) in enumerate(rows, after):
                # The caller has read row `after` before; only its checksum is needed.
                checksum = _chained(checksum, row) if self._row > after else stated
                if row[0] != self._row or stated != checksum:
                    raise ValueError("its checksum does not fit")
                if self._row > after:
                    row[-1] = json.loads(row[-1])
                    events.append(Event(*row))
            if head != [self._row, checksum]:
                raise ValueError(f"rows up to {head[0]} were written, and others are there")
        return events, checksum

    def _append(self, checksum: str, event: Event) -> str:
        """Add a row after the last one, whose checksum this is, and return the new one."""
        row = (event.seq, event.kind, event.query, event.at, event.by, _as_text(event.body))
        checksum = _chained(checksum, row)
        self._execute("insert into event values (?, ?, ?, ?, ?, ?, ?)", (*row, checksum))
        self._execute("update head set seq = ?, checksum = ?", (event.seq, checksum))
        return checksum

    def _create(self, header: Mapping[str, Any]) -> None:
        """Make the tables, with the header in row 0."""
        self._execute(
            "create table event (seq integer primary key, kind text not null, query integer "
            "not null, at double precision not null, by text not null, body text not null, "
            "checksum text not null)"
        )
        self._execute(
            "create table head (format integer not null, seq integer not null, checksum text "
            "not null)"
        )
        self._execute("insert into head values (?, 0, ?)", (FORMAT, ""))
        self._append("", Event(0, "begun", -1, time.time(), myself(), header))


class SQLiteStore(Store):
    """A run in a file, for any number of processes on one machine.

    Commits go to a write-ahead log (WAL) beside the file, and are on disk when they return
    (``synchronous=FULL``). When the last process closes the file, the log is merged into it.

    Args:
        path: The path of the file.
        mode: ``"rw"``, ``"ro"`` to read only, or ``"rwc"`` to make the file.
    """

    _error = sqlite3.Error
    _placeholder = "?"
    _to_read, _to_write, _lock_head, _clock = "begin", "begin immediate", "", "clock()"
    _remedy = (
        "See that the disk has space, that the file and its folder can be written to, and that no "
        "process that uses them is stopped; restore a damaged file from a backup."
    )

    def __init__(self, path: str | Path, mode: str = "rw") -> None:
        self._path, self._mode = Path(path).absolute(), mode
        super().__init__(str(self._path))

    def begin(self, header: Mapping[str, Any]) -> None:
        folder = self._path.parent
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder} is not a folder. Make it, or pass another path.")
        if os.path.lexists(self._path):
            return
        with self.turn():
            if os.path.lexists(self._path):
                return  # another process was first
            new = SQLiteStore(f"{self._path}-new", "rwc")
            new._path.unlink(missing_ok=True)  # of a process that was killed here
            with new._transaction(self._to_write, StorageWriteError):
                new._execute(f"pragma application_id = {_APPLICATION}")
                new._create(header)
            new.close()
            # With the first event, SQLite also synchronizes the folder.
            new._path.rename(self._path)

    def open(self, check: Callable[[Mapping[str, Any]], None]) -> None:
        if not os.path.lexists(self._path):
            raise FileNotFoundError(f"There is no run at {self._path}. Check the path.")
        if self._path.is_symlink():
            reason = "it is a symbolic link, so pass the path that it leads to"
        elif not self._path.is_file():
            reason = "it is not a file"
        else:
            with self._reporting(StorageError, OSError), self._path.open("rb") as file:
                start = file.read(72)
            if start.startswith(b"SQLite format 3\0") and start[68:] == _APPLICATION.to_bytes(4):
                super().open(check)
                if self._mode == "rw":  # a copy that was made by `VACUUM INTO` has lost its mode
                    with self._reporting(StorageWriteError), self._lock:
                        self._execute(_USE_LOG)
                return
            reason = f"it begins with {start[:16]!r}, as the file of another program"
        raise StorageError(
            f"{self._path} is not a run of botorch_bandits: {reason}. Nothing was written. Pass "
            "another path, or restore the run from a backup."
        )

    def _connect(self) -> Any:
        connection = sqlite3.connect(
            f"{self._path.as_uri()}?mode={self._mode}",
            uri=True,
            timeout=60.0,  # for other writers, each of which takes milliseconds
            isolation_level=None,
            check_same_thread=False,
        )
        connection.create_function("clock", 0, time.time)
        connection.execute("pragma synchronous = full")
        # A log that is short is soon written anew from its start; to write over it takes a fifth
        # less time than to let it grow.
        connection.execute("pragma wal_autocheckpoint = 100")
        connection.execute("pragma fullfsync = on")  # on macOS: the drive has written it, too
        if self._mode == "rwc":
            connection.execute(_USE_LOG)  # which the file remembers
        return connection

    # The turn is a `flock` on a file beside the run. It ends with its process, and those who wait
    # for it get it in the order in which they came.

    def _join_queue(self) -> tuple[Any, int]:
        if fcntl is None:
            return sqlite3.connect(f"{self._path}-turn.db", isolation_level=None), -1
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        descriptor = os.open(f"{self._path}-turn", flags, 0o666)
        return descriptor, descriptor

    def _wait(self, ticket: Any, timeout: float | None) -> bool:
        if fcntl is None:  # a transaction on a second file, which ends with its process, too
            milliseconds = 10**9 if timeout is None else int(1000 * timeout)
            ticket.execute(f"pragma busy_timeout = {milliseconds}")
            try:
                ticket.execute("begin immediate")
            except sqlite3.OperationalError:
                return False
            return True
        if timeout is None:
            fcntl.flock(ticket, fcntl.LOCK_EX)
        elif not self._wait_in_thread(ticket, timeout):
            return False
        # Padded, because to cut the file first would make the file system flush it.
        os.write(ticket, f"{myself()} since {time.strftime('%Y-%m-%d %H:%M:%S'):100}\n".encode())
        return True

    def _wait_in_thread(self, ticket: int, timeout: float) -> bool:
        """Wait with a timeout, which ``flock`` does not have, and keep the place in the queue.

        A loop of attempts would be overtaken by everybody who waits. Instead, a thread waits on a
        copy of the descriptor, which shares its lock. If that takes too long, the lock arrives when
        nobody has the other one open, and ends with the copy.
        """
        with self._lock:
            copy = os.dup(ticket)
            self._descriptors.add(copy)

        def wait() -> None:
            fcntl.flock(copy, fcntl.LOCK_EX)
            with self._lock:
                self._descriptors.remove(copy)
                os.close(copy)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        thread.join(timeout)
        return not thread.is_alive()

    def _holder(self, ticket: Any) -> str:
        return (
            "another process"
            if fcntl is None
            else Path(f"{self._path}-turn").read_text().split("\n")[0].strip()
        )

    def _leave(self, ticket: Any) -> None:
        if fcntl is None:
            ticket.close()
        else:
            fcntl.flock(ticket, fcntl.LOCK_UN)  # a program that is being started may have a copy
            os.close(ticket)


def open_store(
    storage: str | Path,
    header: Mapping[str, Any],
    check: Callable[[Mapping[str, Any]], None],
) -> Store:
    """Open a run, or begin it.

    Args:
        storage: The path of an SQLite file, or ``"postgresql://user@host/database#name"`` for a
            run on a server; without a name, it is called ``run``.
        header: What is recorded if the run is begun: plain values.
        check: Called with the recorded header before anything is written; it may raise an error.

    Raises:
        StorageError: If what is there is not a run, or cannot be read or written.
        FileNotFoundError: If there is no folder for the file.
        ValueError: If it is an address of something else.
    """
    store = store_at(storage)
    try:
        store.begin(header)
        store.open(check)
    except BaseException:
        store.close()
        raise
    return store


def read_store(storage: str | Path) -> tuple[Mapping[str, Any], list[Event]]:
    """Return the header and the events of a run, also while others write to it.

    Args:
        storage: As in :func:`open_store`; nothing is written there.

    Raises:
        StorageError: If it is not a run, or cannot be read.
        FileNotFoundError: If there is no such file.
    """
    with closing(store_at(storage, "ro")) as store:
        store.open(lambda header: None)
        return store.header, store.news()


def store_at(storage: str | Path, mode: str = "rw") -> Store:
    """Return the store of a run, which connects when it is used; see :class:`SQLiteStore`."""
    if not str(storage).startswith(("postgresql://", "postgres://")):
        if "://" in str(storage):
            raise ValueError(
                f"storage={storage!r} is neither a path nor the address of a PostgreSQL server. "
                "For an SQLite file, pass its path, such as storage='run.db'; addresses begin with "
                "postgresql://."
            )
        return SQLiteStore(storage, mode)
    return PostgreSQLStore(str(storage))


def myself() -> str:
    """Return who writes: the process and its host."""
    return f"{os.getpid()}@{_HOST}"


def _chained(checksum: str, row: Iterable[object]) -> str:
    """Return the checksum of a row: BLAKE2b of the one before and the columns, one a line."""
    lines = "\n".join(map(str, (checksum, *row)))
    return hashlib.blake2b(lines.encode(), digest_size=16).hexdigest()


def _as_text(body: Mapping[str, Any]) -> str:
    """Return a body as JSON.

    Raises:
        ValueError: If it would come back as something else; the message names the argument.
    """
    try:
        text = _JSON.encode(dict(body))
        text.encode()
        if json.loads(text) == body:
            return text
        reason = "JSON has neither tuples nor keys other than texts"
    except (TypeError, ValueError, RecursionError) as error:
        reason = str(error)
    if len(body) > 1:
        for name, value in body.items():
            _as_text({name: value})  # raises an error that names it
    raise ValueError(
        f"{', '.join(map(str, body))}: this cannot be recorded ({reason}). Pass plain values: "
        "finite numbers, Unicode texts, booleans, None, and lists and dictionaries of these."
    )


# A forked child has no part in the connections and turns of its parent. SQLite keeps a table of the
# locks that its process has, which a child would take for its own, so connections are closed before
# the fork; the parent opens them again when it needs them.

_stores: weakref.WeakSet[Store] = weakref.WeakSet()
_fork_lock = threading.RLock()
_forking: list[Store] = []


def _before_fork() -> None:
    _fork_lock.acquire()
    _forking.extend(_stores)
    for store in _forking:
        store._lock.acquire()
        store.close()


def _after_fork() -> None:
    for store in _forking:
        store._lock.release()
    _forking.clear()
    _fork_lock.release()


def _after_fork_in_child() -> None:
    # A lock lives as long as any copy of its descriptor. Copies are closed, but not unlocked, which
    # would end the turn of the parent.
    for store in _forking:
        for descriptor in store._descriptors:
            os.close(descriptor)
        store._descriptors.clear()
    _after_fork()


if fcntl is not None:  # there are no forks elsewhere
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork,
        after_in_child=_after_fork_in_child,
    )


# --- A run on a PostgreSQL server, which any number of machines can reach -------------------------


_LONGEST_NAME = 63  # bytes; the server would cut a longer one, and take two runs for one


class PostgreSQLStore(Store):
    """A run in a schema of its own, so that one database can have many.

    Args:
        url: ``"postgresql://user@host/database#name"``. The name of the run, which is also that of
            the schema, is ``run`` if it is left out.

    Raises:
        ImportError: If psycopg is not installed.
        ValueError: If the name is too long.
    """

    _placeholder = "%s"
    _to_read = "begin isolation level repeatable read read only"
    # Not the default of the server: after waiting for its lock, the head is read as it is then.
    _to_write = "begin isolation level read committed read write"
    _lock_head, _clock = " for update", "extract(epoch from clock_timestamp())::float8"
    _remedy = (
        "See that the server is running and can be reached, and that the name of the run (what "
        "follows # in the address) is right; then call again."
    )

    def __init__(self, url: str) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise ImportError(
                "A run on a PostgreSQL server needs psycopg. Install it with: pip install "
                '"botorch_bandits[postgres]"'
            ) from error
        self._error, self._timed_out = psycopg.Error, psycopg.errors.LockNotAvailable
        self._begin_session = psycopg.connect
        self._url, _, name = url.partition("#")
        self._name = name or "run"
        if len(self._name.encode()) > _LONGEST_NAME:
            raise ValueError(
                f"the name of a run has at most {_LONGEST_NAME} bytes, but {name!r} has "
                f"{len(name.encode())}. Shorten it."
            )
        self._schema = '"' + self._name.replace('"', '""') + '"'
        without_password = re.sub("(//[^:/@]*):[^@]*@", r"\1@", self._url)
        super().__init__(f"{without_password}#{self._name}")

    def begin(self, header: Mapping[str, Any]) -> None:
        with self._transaction(self._to_write, StorageWriteError):
            # The server refuses the second of two processes that make a schema at once.
            self._execute("select pg_advisory_xact_lock(hashtext(?))", (self._name,))
            if self._execute("select to_regclass('head')").fetchone() == (None,):
                self._execute(f"create schema if not exists {self._schema}")
                self._create(header)

    def _connect(self) -> Any:
        # The server and this machine ask whether the other is there after 30 s of silence. Without
        # it, a machine that has lost power would keep its turn for hours. A process that is stopped
        # in the middle of a transaction holds up all others, until the server ends its session.
        connection = self._begin_session(
            self._url,
            autocommit=True,
            application_name=myself(),
            keepalives_idle=30,
            keepalives_interval=10,
            keepalives_count=3,
        )
        connection.execute(
            "select set_config('search_path', %s, false), set_config('statement_timeout', '0', "
            "false), set_config('idle_in_transaction_session_timeout', '60s', false), "
            "set_config('tcp_keepalives_idle', '30', false), "
            "set_config('tcp_keepalives_interval', '10', false), "
            "set_config('tcp_keepalives_count', '3', false)",
            (self._schema,),
        )
        return connection

    # The turn is an advisory lock of a session of its own. It ends with the session, and those who
    # wait for it get it in the order in which they came. Its number is that of the table.

    def _join_queue(self) -> tuple[Any, int]:
        connection = self._connect()
        return connection, connection.fileno()

    def _wait(self, ticket: Any, timeout: float | None) -> bool:
        milliseconds = 0 if timeout is None else max(1, int(1000 * timeout))  # 0: no limit
        ticket.execute("select set_config('lock_timeout', %s, false)", (str(milliseconds),))
        try:
            ticket.execute("select pg_advisory_lock('head'::regclass::oid::bigint)")
        except self._timed_out:
            return False
        return True

    def _holder(self, ticket: Any) -> str:
        row = ticket.execute(
            "select concat_ws(' since ', application_name, "
            "to_char(state_change, 'YYYY-MM-DD HH24:MI:SS')) "
            "from pg_locks join pg_stat_activity using (pid) "
            "where locktype = 'advisory' and granted and datname = current_database() "
            "and classid = 0 and objid = 'head'::regclass::oid"
        ).fetchone()
        return row[0] if row else "another process"

    def _leave(self, ticket: Any) -> None:
        ticket.close()
