-- Reserves the next nonces of a lane for the plans whose execution still holds its token, inside the lane's fence and window, and as far
-- as the balance that was seen covers all that is open at its highest price and the plans at today's. A delegated sender has one nonce open.
-- Locks: the lane's row, then jobs by primary key in the order of id. Served by: lanes_pkey, jobs_pkey, lineages_one_live_per_job,
-- lineages_open, tx_attempts_lineage_id_ordinal_key.
-- A job that owns a live lineage gets that one back: its nonce is never left for another.
WITH lane AS (
    SELECT id, chain_id, signer, next_nonce, latest_nonce, CASE WHEN delegated THEN least(width, 1) ELSE width END AS width, balance
    FROM holdfast.lanes WHERE id = $1 AND state = 'active' FOR UPDATE
), input AS (
    SELECT * FROM unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::bytea[], $6::bytea[], $7::numeric[], $8::bytea[], $9::bigint[])
        WITH ORDINALITY AS t (job_id, token, lineage_id, call_hash, to_address, value, data, gas_limit, place)
), held AS (
    SELECT i.*, j.cancel_asked_at
    FROM input i JOIN holdfast.jobs j ON j.id = i.job_id
    WHERE j.state = 'processing' AND j.execution_token = i.token
    ORDER BY j.id FOR UPDATE OF j
), owned AS (
    SELECT h.job_id, l.id, l.nonce FROM held h JOIN holdfast.lineages l ON l.job_id = h.job_id AND l.state NOT IN ('superseded', 'abandoned')
), wanted AS (
    SELECT h.*, row_number() OVER (ORDER BY h.place) - 1 AS step, sum(h.gas_limit * $10::numeric + h.value) OVER (ORDER BY h.place) AS cost
    FROM held h WHERE h.cancel_asked_at IS NULL AND NOT EXISTS (SELECT 1 FROM owned o WHERE o.job_id = h.job_id)
), rough AS (
    -- Rich signers are not summed up attempt by attempt: a thousand times today's price is above whatever was tried.
    SELECT n.id, n.latest_nonce, n.balance,
           coalesce(sum(l.gas_limit * $10::numeric * 1000 + l.value), 0) + (SELECT coalesce(max(w.cost), 0) FROM wanted w) AS amount
    FROM lane n LEFT JOIN holdfast.lineages l
      ON l.lane_id = n.id AND l.state IN ('allocated', 'signed', 'broadcast', 'replaced') AND l.nonce >= n.latest_nonce AND n.balance IS NOT NULL
    GROUP BY n.id, n.latest_nonce, n.balance
), committed AS (
    SELECT CASE WHEN r.balance IS NULL OR r.amount <= r.balance THEN 0 ELSE (
        SELECT coalesce(sum(l.gas_limit * coalesce(a.max_fee, $10::numeric) + l.value), 0)
        FROM holdfast.lineages l
        LEFT JOIN LATERAL (SELECT max(t.max_fee_per_gas) AS max_fee FROM holdfast.tx_attempts t WHERE t.lineage_id = l.id) a ON true
        WHERE l.lane_id = r.id AND l.state IN ('allocated', 'signed', 'broadcast', 'replaced') AND l.nonce >= r.latest_nonce
    ) END AS amount
    FROM rough r
), admitted AS (
    SELECT w.*, l.balance IS NULL OR c.amount + w.cost <= l.balance AS funded
    FROM wanted w CROSS JOIN lane l CROSS JOIN committed c WHERE l.next_nonce + w.step - l.latest_nonce < l.width
), reserved AS (
    INSERT INTO holdfast.lineages (id, job_id, lane_id, chain_id, signer, nonce, call_hash, to_address, value, data, gas_limit, state)
    SELECT w.lineage_id, w.job_id, l.id, l.chain_id, l.signer, l.next_nonce + w.step, w.call_hash, w.to_address, w.value, w.data, w.gas_limit, 'allocated'
    FROM admitted w CROSS JOIN lane l WHERE w.funded
    RETURNING id, job_id, nonce
), fence AS (
    UPDATE holdfast.lanes l SET next_nonce = l.next_nonce + r.count, updated_at = now()
    FROM (SELECT count(*) AS count FROM reserved) r WHERE l.id = $1 AND r.count > 0
)
SELECT i.job_id, i.token, (h.job_id IS NOT NULL) AS current, (h.cancel_asked_at IS NOT NULL) AS cancelled, r.id AS lineage_id, r.nonce, (o.id IS NOT NULL) AS owned, coalesce(NOT a.funded, false) AS unfunded
FROM input i
LEFT JOIN held h ON h.job_id = i.job_id AND h.token = i.token
LEFT JOIN reserved r ON r.job_id = h.job_id
LEFT JOIN owned o ON o.job_id = h.job_id
LEFT JOIN admitted a ON a.job_id = h.job_id
ORDER BY i.place
