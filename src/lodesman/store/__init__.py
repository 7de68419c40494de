"""The database: schema, migrations, the journal with group commit, and all SQL (`read`, `write`, by noun)."""

from lodesman.store.sqlite import (
    Checkpointer,
    Reader,
    Writer,
    lock_database,
    open_reader,
    open_writer,
    usable,
)

__all__ = ["Checkpointer", "Reader", "Writer", "lock_database", "open_reader", "open_writer", "usable"]
