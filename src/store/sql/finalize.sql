-- Notes that ends are TX_REORG_LOOKBACK_BLOCKS deep and still canonical: the ones of a lane in these blocks, with the event of each job.
-- Only the holder of the lane's lease writes. Locks: jobs, then lineages, in the order of job_id. Served by: lineages_provisional, jobs_pkey.
WITH blocks AS (
    SELECT * FROM unnest($1::bigint[], $2::bytea[]) AS t (number, hash)
), lease AS (
    SELECT id FROM holdfast.lanes WHERE id = $3 AND lease_holder = $4 AND lease_until > now()
), held AS (
    SELECT l.id AS lineage_id, j.id AS job_id
    FROM lease JOIN holdfast.lineages l ON l.lane_id = lease.id JOIN blocks b ON b.number = l.block_number AND b.hash = l.block_hash JOIN holdfast.jobs j ON j.id = l.job_id
    WHERE l.state IN ('mined', 'reverted') AND l.finalized_at IS NULL
    ORDER BY j.id LIMIT $5 FOR UPDATE OF j, l
), marked AS (
    UPDATE holdfast.lineages l SET finalized_at = now(), updated_at = now() FROM held h WHERE l.id = h.lineage_id
), moved AS (
    UPDATE holdfast.jobs j SET version = j.version + 1, updated_at = now() FROM held h WHERE j.id = h.job_id RETURNING j.id, j.version
)
INSERT INTO holdfast.stream_events (domain, key, version, type) SELECT 'job', id, version, 'finalized' FROM moved
