-- Accepts a batch: idempotency keys, jobs, outbox rows and their first event, in one statement.
-- Locks: the unique index of idempotency_keys, in the order of (project, key), so that two replicas never wait for each other in a ring.
-- Served by: idempotency_keys_pkey. A key that exists already gives no row; the caller looks it up.
WITH input AS (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::bigint[], $7::text[], $8::bytea[], $9::numeric[],
                         $10::bytea[], $11::bigint[], $12::smallint[], $13::timestamptz[], $14::text[])
        AS t (id, project, key, fingerprint, kind, chain_id, pool, to_address, value, data, gas_limit, priority, run_at, metadata)
), keys AS (
    INSERT INTO holdfast.idempotency_keys (project, key, fingerprint, job_id)
    SELECT project, key, fingerprint, id FROM input ORDER BY project, key
    ON CONFLICT (project, key) DO NOTHING
    RETURNING job_id
), accepted AS (
    INSERT INTO holdfast.jobs (id, project, kind, state, chain_id, pool, to_address, value, data, gas_limit, priority, run_at, metadata, attempts_budget)
    SELECT i.id, i.project, i.kind, 'queued', i.chain_id, i.pool, i.to_address, i.value, i.data, NULLIF(i.gas_limit, 0), i.priority,
           greatest(i.run_at, now()), NULLIF(i.metadata, '')::jsonb, $15
    FROM input i JOIN keys k ON k.job_id = i.id
    RETURNING id, priority, run_at
), delivery AS (
    INSERT INTO holdfast.outbox (job_id, priority, deliver_at, next_at)
    SELECT id, priority, run_at, now() FROM accepted
), event AS (
    INSERT INTO holdfast.stream_events (domain, key, version, type)
    SELECT 'job', id, 1, 'queued' FROM accepted
)
SELECT id FROM accepted
