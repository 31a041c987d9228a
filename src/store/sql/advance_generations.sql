-- Gives deliveries a fresh id: the old record is spent while the job is open. The idempotency key and the job stay what they are.
-- Locks: outbox rows by primary key, in the order of job_id. Served by: outbox_pkey.
WITH input AS (SELECT * FROM unnest($1::uuid[], $2::integer[]) AS t (job_id, generation)), held AS (
    SELECT o.job_id FROM input i JOIN holdfast.outbox o ON o.job_id = i.job_id AND o.generation = i.generation
    WHERE o.next_at IS NOT NULL ORDER BY o.job_id FOR UPDATE OF o
)
UPDATE holdfast.outbox o SET generation = o.generation + 1, published_at = NULL, next_at = now(), failures = 0
FROM held h WHERE o.job_id = h.job_id
RETURNING o.job_id, o.generation
