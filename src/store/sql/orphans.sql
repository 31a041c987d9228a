-- The ends of a lane in blocks that are no longer canonical. Locks nothing. Served by: lineages_provisional.
SELECT l.id FROM unnest($2::bigint[], $3::bytea[]) AS b (number, hash)
JOIN holdfast.lineages l ON l.lane_id = $1 AND l.block_number = b.number AND l.block_hash = b.hash
WHERE l.state IN ('mined', 'reverted') AND l.finalized_at IS NULL
ORDER BY l.nonce LIMIT $4
