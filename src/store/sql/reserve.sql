-- Reserves the next nonces of a lane for the plans whose execution still holds its token, inside the lane's fence and window.
-- Locks: the lane's row, then jobs by primary key in the order of id. Served by: lanes_pkey, jobs_pkey.
-- A job that owns a nonce gets no other; that it does stands on its own row, which is read anew when its lock was waited for. No nonce
-- that the chain has used up already is given out: the fence follows first.
WITH lane AS (
    SELECT id, chain_id, signer, next_nonce, latest_nonce, width FROM holdfast.lanes WHERE id = $1 AND state = 'active' FOR UPDATE
), input AS (
    SELECT * FROM unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::bytea[], $6::bytea[], $7::numeric[], $8::bytea[], $9::bigint[])
        WITH ORDINALITY AS t (job_id, token, lineage_id, call_hash, to_address, value, data, gas_limit, place)
), held AS (
    SELECT i.*, j.cancel_asked_at, j.lineage_id AS owned
    FROM input i JOIN holdfast.jobs j ON j.id = i.job_id
    -- The count has the lane locked before any job.
    WHERE j.state = 'processing' AND j.execution_token = i.token AND (SELECT count(*) FROM lane) IS NOT NULL
    ORDER BY j.id FOR UPDATE OF j
), wanted AS (
    SELECT h.*, row_number() OVER (ORDER BY h.place) - 1 AS step
    FROM held h WHERE h.cancel_asked_at IS NULL AND h.owned IS NULL
), reserved AS (
    INSERT INTO holdfast.lineages (id, job_id, lane_id, chain_id, signer, nonce, call_hash, to_address, value, data, gas_limit, state)
    SELECT w.lineage_id, w.job_id, l.id, l.chain_id, l.signer, l.next_nonce + w.step, w.call_hash, w.to_address, w.value, w.data, w.gas_limit, 'allocated'
    FROM wanted w CROSS JOIN lane l WHERE l.next_nonce + w.step - l.latest_nonce < l.width AND l.next_nonce >= l.latest_nonce
    RETURNING id, job_id, nonce
), bound AS (
    UPDATE holdfast.jobs j SET lineage_id = r.id FROM reserved r WHERE j.id = r.job_id
), fence AS (
    UPDATE holdfast.lanes l SET next_nonce = l.next_nonce + r.count, updated_at = now()
    FROM (SELECT count(*) AS count FROM reserved) r WHERE l.id = $1 AND r.count > 0
)
SELECT i.job_id, i.token, (h.job_id IS NOT NULL) AS current, (h.cancel_asked_at IS NOT NULL) AS cancelled, r.id AS lineage_id, r.nonce, (h.owned IS NOT NULL) AS owned
FROM input i
LEFT JOIN held h ON h.job_id = i.job_id AND h.token = i.token
LEFT JOIN reserved r ON r.job_id = h.job_id
ORDER BY i.place
