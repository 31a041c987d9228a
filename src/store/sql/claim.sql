-- Writes the execution tokens of a batch of deliveries before any side effect, and gives back what the workers need.
-- Locks: jobs with their outbox rows, in the order of id. Served by: jobs_pkey, outbox_pkey, job_attempts_pkey, lineages_pkey.
WITH input AS (
    SELECT * FROM unnest($1::uuid[], $2::integer[], $3::uuid[]) AS t (job_id, generation, token)
), held AS (
    SELECT j.id, i.token, i.generation
    FROM input i JOIN holdfast.jobs j ON j.id = i.job_id JOIN holdfast.outbox o ON o.job_id = j.id
    -- Redis delays by the clocks of its clients; the clock of Postgres decides.
    WHERE j.state = ANY ($4::text[]) AND o.generation = i.generation AND o.deliver_at <= now() + interval '20 ms'
    ORDER BY j.id FOR UPDATE OF j, o
), claimed AS (
    UPDATE holdfast.jobs j
    SET state = $5, version = j.version + 1, attempts = j.attempts + 1, execution_token = h.token, worker_id = $6, processing_since = now(), updated_at = now()
    FROM held h WHERE j.id = h.id
    RETURNING j.id, j.version, j.kind, j.chain_id, j.pool, j.to_address, j.value, j.data, j.gas_limit, j.attempts, j.attempts_budget, j.created_at, j.lineage_id, h.token, h.generation
), attempt AS (
    INSERT INTO holdfast.job_attempts (job_id, number, token, worker_id, generation) SELECT id, attempts, token, $6, generation FROM claimed
), replaced AS (
    -- The attempt of a worker that was lost: nobody else ends it.
    UPDATE holdfast.job_attempts a SET finished_at = now(), outcome = 'fenced'
    FROM claimed c WHERE a.job_id = c.id AND a.number = c.attempts - 1 AND a.finished_at IS NULL
), event AS (
    INSERT INTO holdfast.stream_events (domain, key, version, type) SELECT 'job', id, version, $5 FROM claimed
)
SELECT i.job_id, i.token, (c.id IS NOT NULL) AS claimed,
       j.state AS state_before, o.generation AS generation_now, greatest(0, extract(epoch FROM o.deliver_at - now()) * 1000)::bigint AS early_ms,
       c.kind, c.chain_id, c.pool, c.to_address, c.value, c.data, c.gas_limit, c.attempts, c.attempts_budget,
       extract(epoch FROM now() - c.created_at)::double precision AS age_seconds,
       -- A nonce bound while the lock was waited for is on the job's row and not yet in sight: it is read again before it is signed.
       c.lineage_id, coalesce(l.state, 'allocated') AS lineage_state
FROM input i
LEFT JOIN claimed c ON c.id = i.job_id AND c.token = i.token
LEFT JOIN holdfast.jobs j ON j.id = i.job_id
LEFT JOIN holdfast.outbox o ON o.job_id = i.job_id
LEFT JOIN holdfast.lineages l ON l.id = c.lineage_id
