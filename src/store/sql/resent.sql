-- Notes that the settling of a lane gave journaled bytes to the chain again. The job stays what it is: its next execution or its
-- receipt moves it. Only the holder of the lease writes. Locks: lineages, in the order of job_id. Served by: lineages_pkey, lanes_pkey.
WITH input AS (
    SELECT * FROM unnest($1::uuid[], $2::text[]) AS t (lineage_id, answer)
), lease AS (
    SELECT id FROM holdfast.lanes WHERE id = $3 AND lease_holder = $4 AND lease_until > now()
), held AS (
    SELECT l.id, i.answer FROM input i JOIN holdfast.lineages l ON l.id = i.lineage_id JOIN lease ON lease.id = l.lane_id
    WHERE l.state = ANY ($5::text[]) ORDER BY l.job_id FOR UPDATE OF l
)
UPDATE holdfast.lineages l SET state = CASE WHEN l.state = 'replaced' THEN l.state ELSE 'broadcast' END, sends = l.sends + 1,
    last_sent_at = now(), last_answer = h.answer, updated_at = now()
FROM held h WHERE l.id = h.id
