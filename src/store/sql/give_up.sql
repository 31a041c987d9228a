-- Wants nonces used up by a no-op because every endpoint refuses their bytes for good. The call may still mine: then it counts.
-- Only the holder of the lane's lease writes. Locks: lineages, in the order of job_id. Served by: lineages_pkey, lanes_pkey.
WITH input AS (
    SELECT * FROM unnest($1::uuid[], $2::text[]) AS t (lineage_id, detail)
), lease AS (
    SELECT id FROM holdfast.lanes WHERE id = $3 AND lease_holder = $4 AND lease_until > now()
), held AS (
    SELECT l.id, i.detail FROM input i JOIN holdfast.lineages l ON l.id = i.lineage_id JOIN lease ON lease.id = l.lane_id
    WHERE l.noop_reason IS NULL AND l.state = ANY ($5::text[]) ORDER BY l.job_id FOR UPDATE OF l
)
UPDATE holdfast.lineages l SET noop_reason = 'refused', noop_detail = h.detail, updated_at = now()
FROM held h WHERE l.id = h.id
