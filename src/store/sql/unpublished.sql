-- Notes that publishing failed; the next try is a second later, twice that each time, at most a minute.
-- Locks: outbox rows by primary key, in the order of job_id. Served by: outbox_pkey.
WITH held AS (
    SELECT o.job_id FROM holdfast.outbox o WHERE o.job_id = ANY ($1::uuid[]) AND o.next_at IS NOT NULL ORDER BY o.job_id FOR UPDATE OF o
)
UPDATE holdfast.outbox o SET failures = least(o.failures + 1, 1000), next_at = now() + least(60, power(2, least(o.failures, 10))) * interval '1 s'
FROM held h WHERE o.job_id = h.job_id
