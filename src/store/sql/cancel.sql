-- Cancels a job that owns no nonce: at once while nobody executes it, otherwise by asking the execution, which then gets no nonce.
-- The operator's row is written in the same statement when an operator asks. Locks: the job's row. Served by: jobs_pkey, lineages_one_live_per_job.
WITH held AS (
    SELECT j.id, j.state, j.version, j.cancel_asked_at,
           EXISTS (SELECT 1 FROM holdfast.lineages l WHERE l.job_id = j.id AND l.state NOT IN ('superseded', 'abandoned')) AS bound
    FROM holdfast.jobs j WHERE j.id = $1 AND ($2 = '' OR j.project = $2) FOR UPDATE OF j
), ended AS (
    UPDATE holdfast.jobs j SET state = 'cancelled', version = j.version + 1, finished_at = now(), updated_at = now(), cancel_asked_at = now()
    FROM held h WHERE j.id = h.id AND NOT h.bound AND h.state = ANY ($3::text[])
    RETURNING j.id, j.version
), asked AS (
    UPDATE holdfast.jobs j SET cancel_asked_at = now(), updated_at = now() FROM held h
    WHERE j.id = h.id AND NOT h.bound AND h.state = 'processing' AND h.cancel_asked_at IS NULL RETURNING j.id
), delivery AS (
    UPDATE holdfast.outbox o SET next_at = NULL FROM ended e WHERE o.job_id = e.id
), event AS (
    INSERT INTO holdfast.stream_events (domain, key, version, type) SELECT 'job', id, version, 'cancelled' FROM ended
), audit AS (
    INSERT INTO holdfast.operator_actions (operator_id, action, target, reason, before, after)
    SELECT $4, 'jobs.cancel', h.id::text, $5, h.state, CASE WHEN e.id IS NOT NULL THEN 'cancelled' WHEN a.id IS NOT NULL THEN 'cancel asked' ELSE 'refused' END
    FROM held h LEFT JOIN ended e ON e.id = h.id LEFT JOIN asked a ON a.id = h.id WHERE $4 <> ''
)
SELECT h.state, h.bound, (e.id IS NOT NULL) AS cancelled, (h.state = 'processing' AND NOT h.bound) AS asked
FROM held h LEFT JOIN ended e ON e.id = h.id
