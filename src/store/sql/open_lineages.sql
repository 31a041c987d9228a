-- The open nonces of a lane from its head, with the hashes of all their attempts. Locks nothing. Served by: lineages_open.
SELECT l.id, l.job_id, l.nonce, l.state, l.sends, l.gas_limit,
       extract(epoch FROM now() - l.created_at)::double precision AS age_seconds,
       extract(epoch FROM now() - l.last_sent_at)::double precision AS since_sent_seconds,
       coalesce((SELECT array_agg(a.hash ORDER BY a.ordinal) FROM holdfast.tx_attempts a WHERE a.lineage_id = l.id), '{}') AS hashes
FROM holdfast.lineages l
WHERE l.lane_id = $1 AND l.state IN ('allocated', 'signed', 'broadcast', 'replaced') AND l.nonce >= $2
ORDER BY l.nonce LIMIT $3
