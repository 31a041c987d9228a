-- The blocks of a lane's ends that are looked at again: the newest few that a reorganisation may still undo, those at or below a height,
-- and the newest that nothing should undo. Walks the index from block to block, so a busy lane costs as little as a quiet one.
-- Locks nothing. Served by: lineages_provisional, lineages_finalized.
WITH RECURSIVE newest AS (
    (SELECT block_number FROM holdfast.lineages WHERE lane_id = $1 AND state IN ('mined', 'reverted') AND finalized_at IS NULL ORDER BY block_number DESC LIMIT 1)
    UNION ALL
    SELECT (SELECT l.block_number FROM holdfast.lineages l WHERE l.lane_id = $1 AND l.state IN ('mined', 'reverted') AND l.finalized_at IS NULL AND l.block_number < n.block_number
            ORDER BY l.block_number DESC LIMIT 1)
    FROM newest n WHERE n.block_number IS NOT NULL
), heights AS (
    (SELECT block_number FROM newest WHERE block_number IS NOT NULL LIMIT $2)
    UNION
    (SELECT DISTINCT block_number FROM holdfast.lineages WHERE lane_id = $1 AND state IN ('mined', 'reverted') AND finalized_at IS NULL AND block_number <= $3 ORDER BY block_number LIMIT $4)
)
SELECT DISTINCT l.block_number, l.block_hash, false AS finalized FROM heights h JOIN holdfast.lineages l ON l.block_number = h.block_number
WHERE l.lane_id = $1 AND l.state IN ('mined', 'reverted') AND l.finalized_at IS NULL
UNION ALL
(SELECT block_number, block_hash, true FROM holdfast.lineages WHERE lane_id = $1 AND finalized_at IS NOT NULL AND block_number IS NOT NULL ORDER BY block_number DESC LIMIT 1)
