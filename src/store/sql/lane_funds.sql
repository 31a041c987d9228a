-- What a lane's open nonces that the chain has not taken may cost, at the highest price of each (unsigned ones at today's), and what nodes
-- said of them. Locks nothing. Served by: lineages_open, tx_attempts_lineage_id_ordinal_key.
WITH open AS (
    SELECT l.nonce, greatest(l.gas_limit, a.gas) AS gas_limit, l.value, l.last_answer, coalesce(a.max_fee, $3::numeric) AS max_fee
    FROM holdfast.lineages l
    LEFT JOIN LATERAL (SELECT max(t.max_fee_per_gas) AS max_fee, max(t.gas_limit) AS gas FROM holdfast.tx_attempts t WHERE t.lineage_id = l.id) a ON true
    WHERE l.lane_id = $1 AND l.state IN ('allocated', 'signed', 'broadcast', 'replaced') AND l.nonce >= $2
)
SELECT least(coalesce(sum(o.gas_limit * o.max_fee + o.value), 0), 115792089237316195423570985008687907853269984665640564039457584007913129639935)::numeric(78,0) AS committed,
       count(*) AS open, count(*) FILTER (WHERE o.last_answer = ANY ($4::text[])) AS too_many,
       h.gas_limit AS head_gas, h.max_fee::numeric(78,0) AS head_max_fee, h.last_answer AS head_answer
FROM open o LEFT JOIN (SELECT * FROM open ORDER BY nonce LIMIT 1) h ON true
GROUP BY h.gas_limit, h.max_fee, h.last_answer
