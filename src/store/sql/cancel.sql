-- Cancels a job. Without a nonce: at once while nobody executes it, otherwise by asking the execution, which then gets none. With a nonce:
-- a no-op of the same nonce is wanted, priced over everything tried for it, and whichever mines decides; nothing ends here. A nonce that was bound while the job's lock was waited for
-- is not in sight of this statement (`unseen`): it has to run again.
-- The operator's row is written in the same statement when an operator asks. Locks: the job's row, then its lineage.
-- Served by: jobs_pkey, lineages_pkey.
WITH held AS (
    SELECT j.id, j.state, j.version, j.cancel_asked_at,
           j.lineage_id, j.lineage_id IS NOT NULL AS bound
    FROM holdfast.jobs j WHERE j.id = $1 AND ($2 = '' OR j.project = $2) FOR UPDATE OF j
), ended AS (
    UPDATE holdfast.jobs j SET state = 'cancelled', version = j.version + 1, finished_at = now(), updated_at = now(), cancel_asked_at = now()
    FROM held h WHERE j.id = h.id AND NOT h.bound AND h.state = ANY ($3::text[])
    RETURNING j.id, j.version
), noop AS (
    UPDATE holdfast.lineages l SET noop_reason = 'cancelled', noop_detail = NULLIF(concat_ws(': ', NULLIF($4, ''), NULLIF($5, '')), ''), updated_at = now()
    FROM held h WHERE l.id = h.lineage_id AND h.state = ANY ($6::text[]) AND l.state = ANY ($7::text[])
    RETURNING l.job_id AS id
), asked AS (
    UPDATE holdfast.jobs j SET cancel_asked_at = coalesce(j.cancel_asked_at, now()), updated_at = now() FROM held h
    WHERE j.id = h.id AND ((NOT h.bound AND h.state = 'processing') OR EXISTS (SELECT 1 FROM noop n WHERE n.id = h.id)) RETURNING j.id
), delivery AS (
    UPDATE holdfast.outbox o SET next_at = NULL FROM ended e WHERE o.job_id = e.id
), event AS (
    INSERT INTO holdfast.stream_events (domain, key, version, type) SELECT 'job', id, version, 'cancelled' FROM ended
), audit AS (
    INSERT INTO holdfast.operator_actions (operator_id, action, target, reason, before, after)
    SELECT $4, 'jobs.cancel', h.id::text, $5, h.state,
           CASE WHEN e.id IS NOT NULL THEN 'cancelled' WHEN n.id IS NOT NULL THEN 'no-op asked' WHEN a.id IS NOT NULL THEN 'cancel asked' ELSE 'refused' END
    FROM held h LEFT JOIN ended e ON e.id = h.id LEFT JOIN asked a ON a.id = h.id LEFT JOIN noop n ON n.id = h.id WHERE $4 <> ''
)
SELECT h.state, (h.bound AND h.state = ANY ($6::text[]) AND n.id IS NULL) AS unseen, (e.id IS NOT NULL) AS cancelled, (a.id IS NOT NULL AND n.id IS NULL) AS asked, (n.id IS NOT NULL) AS noop
FROM held h LEFT JOIN ended e ON e.id = h.id LEFT JOIN asked a ON a.id = h.id LEFT JOIN noop n ON n.id = h.id
