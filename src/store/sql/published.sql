-- Notes that deliveries stand in Redis and when to look again. A job that ended meanwhile stays without a delivery.
-- Locks: outbox rows by primary key, in the order of job_id. Served by: outbox_pkey.
WITH input AS (SELECT * FROM unnest($1::uuid[], $2::integer[]) AS t (job_id, generation)), held AS (
    SELECT o.job_id FROM input i JOIN holdfast.outbox o ON o.job_id = i.job_id AND o.generation = i.generation
    WHERE o.next_at IS NOT NULL ORDER BY o.job_id FOR UPDATE OF o
)
UPDATE holdfast.outbox o SET published_at = coalesce(o.published_at, now()), next_at = greatest(o.deliver_at, now()) + $3::bigint * interval '1 ms', failures = 0
FROM held h WHERE o.job_id = h.job_id
