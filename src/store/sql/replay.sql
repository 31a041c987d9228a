-- Takes dead jobs up again, from their revalidation on, each under a fresh delivery. Refused while a nonce of one may still take effect: the
-- settling of the lane has to have seen a superseded one again TX_REORG_LOOKBACK_BLOCKS deep; any other keeps the job where it is. The operator's
-- rows are written in the same statement. Locks: jobs with their outbox rows, in the order of job_id. Served by: jobs_pkey, outbox_pkey, lineages_by_job, heads_pkey.
WITH held AS (
    SELECT j.id, j.state FROM holdfast.jobs j JOIN holdfast.outbox o ON o.job_id = j.id WHERE j.id = ANY ($1::uuid[]) ORDER BY j.id FOR UPDATE OF j, o
), bound AS (
    SELECT h.id, count(l.id) FILTER (WHERE l.state <> 'superseded') AS live, count(l.id) FILTER (WHERE l.finalized_at IS NULL) AS provisional,
           max((l.proof -> 'account_nonce' ->> 'block')::bigint) AS superseded_at, max(n.number) AS head
    FROM held h LEFT JOIN holdfast.lineages l ON l.job_id = h.id AND l.state <> 'abandoned' LEFT JOIN holdfast.heads n ON n.chain_id = l.chain_id
    GROUP BY h.id
), allowed AS (
    SELECT h.id FROM held h JOIN bound b ON b.id = h.id WHERE h.state = ANY ($4::text[]) AND b.live = 0 AND b.provisional = 0
), moved AS (
    UPDATE holdfast.jobs j SET state = $5, version = j.version + 1, finished_at = NULL, updated_at = now(), attempts_budget = j.attempts + $6::integer,
        error_type = NULL, error_title = NULL, error_detail = NULL, cancel_asked_at = NULL
    FROM allowed a WHERE j.id = a.id
    RETURNING j.id, j.version
), delivery AS (
    UPDATE holdfast.outbox o SET generation = o.generation + 1, deliver_at = now(), next_at = now(), published_at = NULL, failures = 0 FROM moved m WHERE o.job_id = m.id
), event AS (
    INSERT INTO holdfast.stream_events (domain, key, version, type) SELECT 'job', id, version, $5 FROM moved
), audit AS (
    INSERT INTO holdfast.operator_actions (operator_id, action, target, reason, before, after)
    SELECT $2, 'jobs.replay', h.id::text, $3, h.state, CASE WHEN m.id IS NOT NULL THEN $5 ELSE 'refused' END FROM held h LEFT JOIN moved m ON m.id = h.id
)
SELECT h.id, h.state, (m.id IS NOT NULL) AS replayed, b.live, b.superseded_at, b.head FROM held h JOIN bound b ON b.id = h.id LEFT JOIN moved m ON m.id = h.id ORDER BY h.id
