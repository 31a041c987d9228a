-- Redis answers again: deliveries that it refused do not wait out their back-off. None that a publisher holds at this moment.
-- Locks: outbox rows, those of others are skipped. Served by: outbox_unpublished.
WITH batch AS (
    SELECT job_id FROM holdfast.outbox
    WHERE next_at > now() + $1::bigint * interval '1 ms' AND published_at IS NULL AND failures > 0
    ORDER BY deliver_at LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE holdfast.outbox o SET next_at = now(), failures = 0 FROM batch b WHERE o.job_id = b.job_id
