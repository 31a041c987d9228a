-- Notes that journaled bytes were given to the chain: lineages, jobs, their attempts, their deliveries and events together.
-- Only executions that still hold their token. Locks: jobs with their lineages and outbox rows, in the order of job_id. Served by: jobs_pkey, lineages_pkey, outbox_pkey.
WITH input AS (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[]) AS t (lineage_id, job_id, token, answer)
), held AS (
    SELECT i.*, j.attempts FROM input i JOIN holdfast.jobs j ON j.id = i.job_id JOIN holdfast.lineages l ON l.id = i.lineage_id JOIN holdfast.outbox o ON o.job_id = j.id
    WHERE j.state = ANY ($5::text[]) AND j.execution_token = i.token ORDER BY j.id FOR UPDATE OF j, l, o
), lineage AS (
    UPDATE holdfast.lineages l SET state = CASE WHEN l.state = 'replaced' THEN l.state ELSE 'broadcast' END, sends = l.sends + 1,
        last_sent_at = now(), last_answer = h.answer, updated_at = now()
    FROM held h WHERE l.id = h.lineage_id AND l.state = ANY ($6::text[])
), moved AS (
    UPDATE holdfast.jobs j SET state = $7, version = j.version + 1, execution_token = NULL, worker_id = NULL, processing_since = NULL,
        error_type = NULL, error_title = NULL, error_detail = NULL, updated_at = now()
    FROM held h WHERE j.id = h.job_id
    RETURNING j.id, j.version, h.token, h.attempts, extract(epoch FROM now() - j.created_at)::double precision AS age_seconds
), attempt AS (
    UPDATE holdfast.job_attempts a SET finished_at = now(), outcome = 'submitted' FROM moved m WHERE a.job_id = m.id AND a.number = m.attempts
), delivery AS (
    UPDATE holdfast.outbox o SET next_at = NULL FROM moved m WHERE o.job_id = m.id
), event AS (
    INSERT INTO holdfast.stream_events (domain, key, version, type) SELECT 'job', id, version, $7 FROM moved
)
SELECT token, age_seconds FROM moved
