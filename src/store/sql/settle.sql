-- Ends lineages whose receipt a majority showed at TX_CONFIRMATIONS: the lineage with its proof, the job, its delivery and its event together.
-- Whoever still executes the job is fenced. Only the holder of the lane's lease writes.
-- Locks: jobs with their lineages and outbox rows, in the order of job_id. Served by: lineages_pkey, jobs_pkey, outbox_pkey.
WITH input AS (
    SELECT * FROM unnest($1::uuid[], $2::bytea[], $3::text[], $4::bigint[], $5::bytea[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[])
        AS t (lineage_id, hash, lineage_state, block_number, block_hash, gas_used, gas_price, proof, job_state, error_type, error_title, error_detail)
), lease AS (
    SELECT id FROM holdfast.lanes WHERE id = $13 AND lease_holder = $14 AND lease_until > now()
), held AS (
    SELECT i.*, j.id AS job_id, j.state AS was, j.attempts
    FROM input i JOIN holdfast.lineages l ON l.id = i.lineage_id JOIN lease ON lease.id = l.lane_id JOIN holdfast.jobs j ON j.id = l.job_id JOIN holdfast.outbox o ON o.job_id = j.id
    WHERE l.state = ANY ($15::text[]) AND j.state = ANY ($16::text[])
    ORDER BY j.id FOR UPDATE OF j, l, o
), ended AS (
    UPDATE holdfast.lineages l SET state = h.lineage_state, mined_hash = h.hash, block_number = h.block_number,
        block_hash = h.block_hash, gas_used = h.gas_used, effective_gas_price = NULLIF(h.gas_price, '')::numeric, proof = h.proof::jsonb, updated_at = now(), ended_at = now()
    FROM held h WHERE l.id = h.lineage_id
    RETURNING l.id, l.created_at, l.last_sent_at
), moved AS (
    UPDATE holdfast.jobs j SET state = h.job_state, version = j.version + 1, execution_token = NULL,
        worker_id = NULL, processing_since = NULL, updated_at = now(), finished_at = now(),
        error_type = NULLIF(h.error_type, ''), error_title = NULLIF(h.error_title, ''), error_detail = NULLIF(h.error_detail, '')
    FROM held h WHERE j.id = h.job_id
    RETURNING j.id, j.kind, j.state, j.version, h.lineage_id, h.was, h.attempts
), attempt AS (
    UPDATE holdfast.job_attempts a SET finished_at = now(), outcome = 'fenced'
    FROM moved m WHERE a.job_id = m.id AND a.number = m.attempts AND m.was = 'processing' AND a.finished_at IS NULL
), delivery AS (
    UPDATE holdfast.outbox o SET next_at = NULL FROM moved m WHERE o.job_id = m.id AND o.next_at IS NOT NULL
), event AS (
    INSERT INTO holdfast.stream_events (domain, key, version, type) SELECT 'job', id, version, state FROM moved
)
SELECT m.lineage_id, m.kind, m.state, extract(epoch FROM now() - coalesce(e.last_sent_at, e.created_at))::double precision AS since_sent_seconds
FROM moved m JOIN ended e ON e.id = m.lineage_id
