-- Ends nonces that a majority proved to be used up by a transaction that is none of ours. The job of a signed one is dead and waits for
-- an operator: its effect is not on the chain, and nothing was ever signed twice. The job of an unsigned one may have another nonce.
-- Only the holder of the lane's lease writes. Locks: jobs with their lineages and outbox rows, in the order of job_id. Served by: lineages_pkey, jobs_pkey, outbox_pkey.
WITH input AS (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::integer[]) AS t (lineage_id, proof, hashes)
), lease AS (
    SELECT id FROM holdfast.lanes WHERE id = $4 AND lease_holder = $5 AND lease_until > now()
), held AS (
    SELECT i.*, j.id AS job_id, j.state AS job_state, j.attempts, l.nonce, l.signer
    FROM input i JOIN holdfast.lineages l ON l.id = i.lineage_id JOIN lease ON lease.id = l.lane_id JOIN holdfast.jobs j ON j.id = l.job_id JOIN holdfast.outbox o ON o.job_id = j.id
    WHERE l.state = ANY ($6::text[]) AND j.state = ANY ($7::text[])
      -- An attempt that was signed since the receipts were read has not been looked for. Counted on the row that is locked.
      AND i.hashes = (l.state <> 'allocated')::integer + l.replacements + l.noops
    ORDER BY j.id FOR UPDATE OF j, l, o
), ended AS (
    UPDATE holdfast.lineages l SET state = 'superseded', proof = h.proof::jsonb, updated_at = now(), ended_at = now()
    FROM held h WHERE l.id = h.lineage_id
), moved AS (
    UPDATE holdfast.jobs j SET state = CASE WHEN h.hashes > 0 THEN $8 ELSE $9 END, version = j.version + 1, execution_token = NULL, worker_id = NULL, processing_since = NULL, lineage_id = NULL,
        updated_at = now(), finished_at = CASE WHEN h.hashes > 0 THEN now() ELSE NULL END,
        error_type = 'nonce_superseded', error_title = 'Its nonce was used up by a transaction that is not ours',
        error_detail = 'nonce ' || h.nonce || ' of 0x' || encode(h.signer, 'hex') || ': none of the ' || h.hashes || ' signed transactions was mined'
    FROM held h WHERE j.id = h.job_id
    RETURNING j.id, j.kind, j.state, j.version, h.lineage_id, h.job_state, h.attempts, h.hashes
), attempt AS (
    UPDATE holdfast.job_attempts a SET finished_at = now(), outcome = 'fenced'
    FROM moved m WHERE a.job_id = m.id AND a.number = m.attempts AND m.job_state = 'processing' AND a.finished_at IS NULL
), delivery AS (
    UPDATE holdfast.outbox o SET next_at = CASE WHEN m.hashes > 0 THEN NULL ELSE now() END, deliver_at = CASE WHEN m.hashes > 0 THEN o.deliver_at ELSE now() END,
        generation = o.generation + (m.hashes = 0)::integer, published_at = CASE WHEN m.hashes > 0 THEN o.published_at ELSE NULL END
    FROM moved m WHERE o.job_id = m.id
), event AS (
    INSERT INTO holdfast.stream_events (domain, key, version, type) SELECT 'job', id, version, state FROM moved
)
SELECT lineage_id, kind, state FROM moved
