"""Statements about input files: which there are, which of them submissions name, what they take."""

from __future__ import annotations

from lodesman.store.forget import GIVEN

FILES = """SELECT s.owner, s.sha256, s.created_at, s.unused_since,
EXISTS (SELECT 1 FROM sandbox_use u WHERE u.owner = s.owner AND u.sha256 = s.sha256)
FROM sandbox s WHERE (s.owner, s.sha256) > (?, ?) ORDER BY s.owner, s.sha256 LIMIT ?"""
THESE = "(owner, sha256) IN (SELECT value ->> '$[0]', value ->> '$[1]' FROM json_each(?))"
NAMED = "EXISTS (SELECT 1 FROM sandbox_use u WHERE u.owner = sandbox.owner AND u.sha256 = sandbox.sha256)"
MARK = f"UPDATE sandbox SET unused_since = ? WHERE {THESE} AND unused_since IS NULL AND created_at < ? AND NOT {NAMED}"
UNMARK = f"UPDATE sandbox SET unused_since = NULL WHERE {THESE} AND {NAMED}"
REMOVE = (
    f"DELETE FROM sandbox WHERE {THESE} AND unused_since < ? AND NOT {NAMED} RETURNING owner, sha256, size"
)
LESS_USED = "UPDATE sandbox_usage SET files = files - 1, bytes = bytes - ? WHERE owner = ?"
DROP = f"""DELETE FROM sandbox_use WHERE (owner, sha256, submission_id) IN (SELECT owner, sha256, submission_id
FROM sandbox_use WHERE submission_id IN {GIVEN} LIMIT ?)"""
DROP_SOME = f"DELETE FROM sandbox_use WHERE submission_id = ? AND sha256 IN {GIVEN}"
# Of some files and jobs, those that are known; whether there is any job in a range.
KNOWN_FILES = f"SELECT sha256 FROM sandbox WHERE owner = ? AND sha256 IN {GIVEN}"
KNOWN_JOBS = f"SELECT id FROM job WHERE id IN {GIVEN}"
ANY_JOB = "SELECT 1 FROM job WHERE id BETWEEN ? AND ? LIMIT 1"
OWNERS = "SELECT owner FROM sandbox_usage"
NAMED_BY = "SELECT sha256 FROM sandbox_use WHERE submission_id = ?"
BODIES = """SELECT t.body FROM submission s JOIN template t ON t.id BETWEEN s.first_template AND s.last_template
WHERE s.id = ?"""
