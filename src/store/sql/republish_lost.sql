-- After the loss of Redis: the next open deliveries that were published before it are due at once, under their own id. The caller comes back with
-- where this batch ended, so that a backlog of any size is many short statements, between which publishing and checking go on.
-- Locks: outbox rows; those of others are skipped and found by a later pass. Served by: outbox_due.
WITH batch AS (
    SELECT job_id, next_at FROM holdfast.outbox
    WHERE next_at IS NOT NULL AND published_at < $1 AND (next_at, job_id) > ($2, $3)
    ORDER BY next_at, job_id LIMIT $4 FOR UPDATE SKIP LOCKED
), due AS (
    UPDATE holdfast.outbox o SET published_at = NULL, next_at = now(), failures = 0 FROM batch b WHERE o.job_id = b.job_id
)
SELECT next_at, job_id, count(*) OVER () AS deliveries FROM batch ORDER BY next_at DESC, job_id DESC LIMIT 1
