-- Reserves the next nonces of a lane for the plans whose execution still holds its token, inside the lane's fence and window, and as far
-- as the balance that was seen covers all that is open at its highest price and the plans at today's. A plan that alone is too dear stands
-- in nobody's way. A delegated sender has one nonce open.
-- Locks: the lane's row, then jobs by primary key in the order of id. Served by: lanes_pkey, jobs_pkey, lineages_open,
-- tx_attempts_lineage_id_ordinal_key.
-- A job that owns a nonce gets no other; that it does stands on its own row, which is read anew when its lock was waited for. No nonce
-- that the chain has used up already is given out: the fence follows first.
WITH lane AS (
    SELECT id, chain_id, signer, next_nonce, latest_nonce, CASE WHEN delegated THEN least(width, 1) ELSE width END AS width, balance
    FROM holdfast.lanes WHERE id = $1 AND state = 'active' FOR UPDATE
), input AS (
    SELECT * FROM unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::bytea[], $6::bytea[], $7::numeric[], $8::bytea[], $9::bigint[])
        WITH ORDINALITY AS t (job_id, token, lineage_id, call_hash, to_address, value, data, gas_limit, place)
), held AS (
    SELECT i.*, j.cancel_asked_at, j.lineage_id AS owned
    FROM input i JOIN holdfast.jobs j ON j.id = i.job_id
    -- The count has the lane locked before any job.
    WHERE j.state = 'processing' AND j.execution_token = i.token AND (SELECT count(*) FROM lane) IS NOT NULL
    ORDER BY j.id FOR UPDATE OF j
), candidates AS (
    SELECT h.*, h.gas_limit * $10::numeric + h.value AS cost FROM held h WHERE h.cancel_asked_at IS NULL AND h.owned IS NULL
), rough AS (
    -- Rich signers are not summed up attempt by attempt: a thousand times today's price is above whatever was tried.
    SELECT n.id, n.latest_nonce, n.balance,
           coalesce(sum(l.gas_limit * $10::numeric * 1000 + l.value), 0) + (SELECT coalesce(sum(c.cost), 0) FROM candidates c) AS amount
    FROM lane n LEFT JOIN holdfast.lineages l
      ON l.lane_id = n.id AND l.state IN ('allocated', 'signed', 'broadcast', 'replaced') AND l.nonce >= n.latest_nonce AND n.balance IS NOT NULL
    GROUP BY n.id, n.latest_nonce, n.balance
), committed AS (
    SELECT CASE WHEN r.balance IS NULL OR r.amount <= r.balance THEN 0 ELSE (
        SELECT coalesce(sum(greatest(l.gas_limit, a.gas) * coalesce(a.max_fee, $10::numeric) + l.value), 0)
        FROM holdfast.lineages l
        LEFT JOIN LATERAL (SELECT max(t.max_fee_per_gas) AS max_fee, max(t.gas_limit) AS gas FROM holdfast.tx_attempts t WHERE t.lineage_id = l.id) a ON true
        WHERE l.lane_id = r.id AND l.state IN ('allocated', 'signed', 'broadcast', 'replaced') AND l.nonce >= r.latest_nonce
    ) END AS amount
    FROM rough r
), payable AS (
    SELECT c.*, sum(c.cost) OVER (ORDER BY c.place) AS total, row_number() OVER (ORDER BY c.place) - 1 AS step
    FROM candidates c CROSS JOIN lane l CROSS JOIN committed m WHERE l.balance IS NULL OR m.amount + c.cost <= l.balance
), reserved AS (
    INSERT INTO holdfast.lineages (id, job_id, lane_id, chain_id, signer, nonce, call_hash, to_address, value, data, gas_limit, state)
    SELECT p.lineage_id, p.job_id, l.id, l.chain_id, l.signer, l.next_nonce + p.step, p.call_hash, p.to_address, p.value, p.data, p.gas_limit, 'allocated'
    FROM payable p CROSS JOIN lane l CROSS JOIN committed m
    WHERE l.next_nonce + p.step - l.latest_nonce < l.width AND l.next_nonce >= l.latest_nonce AND (l.balance IS NULL OR m.amount + p.total <= l.balance)
    RETURNING id, job_id, nonce
), bound AS (
    UPDATE holdfast.jobs j SET lineage_id = r.id FROM reserved r WHERE j.id = r.job_id
), fence AS (
    UPDATE holdfast.lanes l SET next_nonce = l.next_nonce + r.count, updated_at = now()
    FROM (SELECT count(*) AS count FROM reserved) r WHERE l.id = $1 AND r.count > 0
)
SELECT i.job_id, i.token, (h.job_id IS NOT NULL) AS current, (h.cancel_asked_at IS NOT NULL) AS cancelled, r.id AS lineage_id, r.nonce, (h.owned IS NOT NULL) AS owned,
       (c.job_id IS NOT NULL AND l.balance IS NOT NULL AND (p.job_id IS NULL OR m.amount + p.total > l.balance)) AS unfunded
FROM input i
LEFT JOIN held h ON h.job_id = i.job_id AND h.token = i.token
LEFT JOIN candidates c ON c.job_id = h.job_id
LEFT JOIN payable p ON p.job_id = h.job_id
LEFT JOIN reserved r ON r.job_id = h.job_id
LEFT JOIN lane l ON true LEFT JOIN committed m ON true
ORDER BY i.place
