-- Gives nonces below the fence that nobody owns to jobs of the service itself, each a transfer of nothing to the signer: whoever used them up was undone by
-- a reorganisation, and nothing behind them can be mined. Job, nonce, delivery, key and event of each together, and an act on record.
-- Only the holder of the lease writes, and a nonce that has ever had signed bytes is left alone. Locks: the lane's row. Served by: lanes_pkey, lineages_one_per_nonce.
WITH input AS (
    SELECT * FROM unnest($3::bigint[], $4::uuid[], $5::uuid[], $6::bytea[]) AS t (nonce, job_id, lineage_id, fingerprint)
), lane AS (
    SELECT id, chain_id, pool, signer, next_nonce, latest_nonce FROM holdfast.lanes
    WHERE id = $1 AND lease_holder = $2 AND lease_until > now() AND state <> 'frozen' FOR UPDATE
), gaps AS (
    SELECT i.*, l.id AS lane_id, l.chain_id, l.pool, l.signer FROM input i CROSS JOIN lane l
    WHERE i.nonce >= l.latest_nonce AND i.nonce < l.next_nonce AND NOT EXISTS (
        SELECT 1 FROM holdfast.lineages x WHERE x.chain_id = l.chain_id AND x.signer = l.signer AND x.nonce = i.nonce AND x.state <> 'abandoned')
), keys AS (
    INSERT INTO holdfast.idempotency_keys (project, key, fingerprint, job_id)
    SELECT $7, 'gap:' || job_id, fingerprint, job_id FROM gaps
), jobs AS (
    INSERT INTO holdfast.jobs (id, project, kind, state, chain_id, pool, to_address, value, data, gas_limit, priority, run_at, metadata, attempts_budget, lineage_id)
    SELECT job_id, $7, 'transfer', 'queued', chain_id, pool, signer, 0, '', NULL, 1, now(), jsonb_build_object('purpose', 'fills a gap', 'nonce', nonce), $9, lineage_id FROM gaps
    RETURNING id
), lineages AS (
    INSERT INTO holdfast.lineages (id, job_id, lane_id, chain_id, signer, nonce, call_hash, to_address, value, data, gas_limit, state)
    SELECT lineage_id, job_id, lane_id, chain_id, signer, nonce, fingerprint, signer, 0, '', $8, 'allocated' FROM gaps
), deliveries AS (
    INSERT INTO holdfast.outbox (job_id, priority, deliver_at, next_at) SELECT id, 1, now(), now() FROM jobs
), events AS (
    INSERT INTO holdfast.stream_events (domain, key, version, type) SELECT 'job', id, 1, 'queued' FROM jobs
), acts AS (
    INSERT INTO holdfast.operator_actions (operator_id, action, target, reason, before, after)
    SELECT 'holdfast', 'lanes.fill_gap', '0x' || encode(signer, 'hex') || '@' || chain_id, 'a reorganisation undid the transaction of a stranger that had used this nonce up',
           nonce::text, job_id::text FROM gaps
)
SELECT nonce FROM gaps ORDER BY nonce
