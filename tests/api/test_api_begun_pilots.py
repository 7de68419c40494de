"""Whether a pilot is known to have run, or to have ended: no copy of its directory may start it then."""

from __future__ import annotations

from lodesman.store.read.pilots import has_begun


def test_a_pilot_has_begun_when_it_was_seen_to_run_or_joined_or_ended(house):
    house.prepare_pilot()
    db, stamp = house.side.db, f"stamp{house.pilots}"
    assert not has_begun(db, stamp)
    assert not has_begun(db, "unknown"), "as that of a test job"
    for column, value in (("host", "n1"), ("joined_at", 1.0), ("ended_at", 1.0)):
        (before,) = db.only(f"SELECT {column} FROM pilot WHERE stamp = ?", (stamp,))
        change = f"UPDATE pilot SET {column} = ? WHERE stamp = ?"
        house._writer.change(change, (value, stamp))
        assert has_begun(db, stamp), column
        house._writer.change(change, (before, stamp))
    assert not has_begun(db, stamp)
    house.pilot()
    assert has_begun(db, f"stamp{house.pilots}")
