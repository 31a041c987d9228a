-- Undoes ends that a reorganisation undid, in one act: the lineage is signed again (its dearest bytes are the newest), whoever executes
-- the job is fenced, the job goes to retry, its delivery gets the next generation, and the guard of the table keeps what was undone.
-- A nonce that never had bytes is nobody's instead: its job has gone on without it. Only the holder of the lane's lease writes. A lineage
-- stays what it is where its job owns another one meanwhile: it was taken up again, and two nonces could both mine.
-- Locks: jobs with their lineages and outbox rows, in the order of job_id. Served by: lineages_pkey, jobs_pkey, outbox_pkey, lineages_by_job.
WITH lease AS (
    SELECT id FROM holdfast.lanes WHERE id = $2 AND lease_holder = $3 AND lease_until > now()
), held AS (
    SELECT l.id AS lineage_id, j.id AS job_id, j.state AS was, EXISTS (SELECT 1 FROM holdfast.tx_attempts a WHERE a.lineage_id = l.id) AS signed
    FROM holdfast.lineages l JOIN lease ON lease.id = l.lane_id JOIN holdfast.jobs j ON j.id = l.job_id JOIN holdfast.outbox o ON o.job_id = j.id
    WHERE l.id = ANY ($1::uuid[]) AND l.state = ANY ($4::text[]) AND l.finalized_at IS NULL
    ORDER BY j.id FOR UPDATE OF j, l, o
), owners AS (
    SELECT h.* FROM held h JOIN holdfast.lineages l ON l.id = h.lineage_id
    WHERE h.signed AND NOT EXISTS (SELECT 1 FROM holdfast.lineages x WHERE x.job_id = h.job_id AND x.id <> h.lineage_id
        AND (x.state NOT IN ('superseded', 'abandoned') OR (x.id = ANY ($1::uuid[]) AND x.nonce > l.nonce)))
), revived AS (
    UPDATE holdfast.lineages l SET state = 'signed', revivals = l.revivals + 1, mined_hash = NULL, block_number = NULL, block_hash = NULL, gas_used = NULL,
        effective_gas_price = NULL, proof = NULL, ended_at = NULL, last_sent_at = NULL, last_answer = NULL, updated_at = now()
    FROM owners h WHERE l.id = h.lineage_id
    RETURNING l.id
), freed AS (
    UPDATE holdfast.lineages l SET state = 'abandoned', proof = l.proof || '{"undone": true}', updated_at = now()
    FROM held h WHERE l.id = h.lineage_id AND NOT h.signed AND l.state = ANY ($7::text[])
    RETURNING l.id
), moved AS (
    UPDATE holdfast.jobs j SET state = $6, version = j.version + 1, execution_token = NULL, worker_id = NULL, processing_since = NULL,
        finished_at = NULL, lineage_id = h.lineage_id, error_type = NULL, error_title = NULL, error_detail = NULL, updated_at = now()
    FROM owners h WHERE j.id = h.job_id AND h.was = ANY ($5::text[])
    RETURNING j.id, j.version, j.kind
), delivery AS (
    UPDATE holdfast.outbox o SET generation = o.generation + 1, deliver_at = now(), next_at = now(), published_at = NULL, failures = 0 FROM moved m WHERE o.job_id = m.id
), event AS (
    INSERT INTO holdfast.stream_events (domain, key, version, type) SELECT 'job', id, version, 'reorged' FROM moved
)
SELECT id AS lineage_id, true AS signed FROM revived UNION ALL SELECT id, false FROM freed
