"""A run on a PostgreSQL server, which any number of machines can reach."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import psycopg

from botorch_bandits.loop.store import StorageWriteError, Store, myself

_LONGEST_NAME = 63  # bytes; the server would cut a longer one, and take two runs for one


class PostgreSQLStore(Store):
    """A run in a schema of its own, so that one database can have many.

    Args:
        url: ``"postgresql://user@host/database#name"``. The name of the run, which is also that of
            the schema, is ``run`` if it is left out.

    Raises:
        ValueError: If the name is too long.
    """

    _error = psycopg.Error
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
        connection = psycopg.connect(
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
        except psycopg.errors.LockNotAvailable:
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
