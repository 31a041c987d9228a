-- Wants nonces used up by a no-op because every endpoint refuses their bytes for good. The call may still mine: then it counts.
-- Only the holder of the lane's lease writes. Locks: lineages by primary key. Served by: lineages_pkey, lanes_pkey.
WITH input AS (
    SELECT * FROM unnest($1::uuid[], $2::text[]) AS t (lineage_id, detail)
), lease AS (
    SELECT id FROM holdfast.lanes WHERE id = $3 AND lease_holder = $4 AND lease_until > now()
)
UPDATE holdfast.lineages l SET noop_reason = 'refused', noop_detail = i.detail, updated_at = now()
FROM input i, lease WHERE l.id = i.lineage_id AND l.lane_id = lease.id AND l.noop_reason IS NULL AND l.state = ANY ($5::text[])
