-- Takes published deliveries whose check is due, and keeps other reconcilers away from them for the lease.
-- Locks: outbox rows, those of others are skipped. Served by: outbox_due.
WITH due AS (
    SELECT job_id FROM holdfast.outbox
    WHERE next_at <= now() AND published_at IS NOT NULL
    ORDER BY next_at LIMIT $1 FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE holdfast.outbox o SET next_at = now() + $2::bigint * interval '1 ms' FROM due d WHERE o.job_id = d.job_id
    RETURNING o.job_id, o.generation, o.priority, o.deliver_at
)
SELECT job_id, generation, priority, greatest(0, extract(epoch FROM deliver_at - now()) * 1000)::bigint AS delay_ms FROM taken ORDER BY priority, deliver_at, job_id
