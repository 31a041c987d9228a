-- Gives an unsigned nonce back: only the tail of its lane, only while nothing was ever signed for it, and only for the execution that
-- holds the token. The job ends as not actionable in the same statement. Locks: the lane's row, then the job, then the lineage.
-- Served by: lanes_pkey, jobs_pkey, lineages_pkey, tx_attempts_lineage_id_ordinal_key.
WITH lane AS (
    SELECT n.id, n.next_nonce FROM holdfast.lanes n JOIN holdfast.lineages l ON l.lane_id = n.id WHERE l.id = $1 FOR UPDATE OF n
), held AS (
    SELECT j.id, j.attempts FROM holdfast.jobs j JOIN holdfast.lineages l ON l.job_id = j.id
    WHERE l.id = $1 AND j.state = 'processing' AND j.execution_token = $2 FOR UPDATE OF j
), released AS (
    UPDATE holdfast.lineages l SET state = 'abandoned', updated_at = now(), ended_at = now(), proof = jsonb_build_object('rule', 'unsigned_tail', 'reason', $3::text)
    FROM lane n, held h
    WHERE l.id = $1 AND l.state = ANY ($4::text[]) AND l.nonce = n.next_nonce - 1 AND NOT EXISTS (SELECT 1 FROM holdfast.tx_attempts a WHERE a.lineage_id = l.id)
    RETURNING l.lane_id, l.nonce, h.id AS job_id, h.attempts
), fence AS (
    UPDATE holdfast.lanes n SET next_nonce = r.nonce, updated_at = now() FROM released r WHERE n.id = r.lane_id
), moved AS (
    UPDATE holdfast.jobs j SET state = $5, version = j.version + 1, execution_token = NULL, worker_id = NULL, processing_since = NULL, lineage_id = NULL, updated_at = now(), finished_at = now(),
        error_type = 'not_actionable', error_title = 'The call reverts', error_detail = left($3, 4000)
    FROM released r WHERE j.id = r.job_id
    RETURNING j.id, j.version, r.attempts
), attempt AS (
    UPDATE holdfast.job_attempts a SET finished_at = now(), outcome = 'not_actionable', error_type = 'not_actionable', detail = left($3, 4000)
    FROM moved m WHERE a.job_id = m.id AND a.number = m.attempts
), delivery AS (
    UPDATE holdfast.outbox o SET next_at = NULL FROM moved m WHERE o.job_id = m.id
), event AS (
    INSERT INTO holdfast.stream_events (domain, key, version, type) SELECT 'job', id, version, $5 FROM moved
)
SELECT nonce FROM released
