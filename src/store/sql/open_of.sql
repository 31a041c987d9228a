-- Open nonces by their ids, as a lane's own rounds see them (open_lineages.sql), with the hashes and the highest price of all their attempts. Locks nothing. Served by: lineages_pkey.
SELECT l.id, l.job_id, l.nonce, l.state, l.sends, greatest(l.gas_limit, a.gas) AS gas_limit, l.replacements, l.noops, l.priced_block, l.noop_reason, l.noop_detail, l.last_answer, l.capped_at IS NOT NULL AS capped,
       extract(epoch FROM now() - l.created_at)::double precision AS age_seconds,
       extract(epoch FROM now() - l.last_sent_at)::double precision AS since_sent_seconds,
       extract(epoch FROM now() - a.newest)::double precision AS since_priced_seconds,
       coalesce(a.hashes, '{}') AS hashes, coalesce(a.purposes, '{}') AS purposes, a.max_fee, a.tip
FROM holdfast.lineages l
LEFT JOIN LATERAL (
    SELECT array_agg(t.hash ORDER BY t.ordinal) AS hashes, array_agg(t.purpose ORDER BY t.ordinal) AS purposes, max(t.max_fee_per_gas) AS max_fee, max(t.gas_limit) AS gas,
           max(t.max_priority_fee_per_gas) AS tip, max(t.created_at) AS newest
    FROM holdfast.tx_attempts t WHERE t.lineage_id = l.id
) a ON true
WHERE l.id = ANY ($1::uuid[]) AND l.state IN ('allocated', 'signed', 'broadcast', 'replaced')
ORDER BY l.lane_id, l.nonce
