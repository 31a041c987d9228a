-- Takes deliveries that were never published, most urgent first, and keeps other publishers away from them for the lease.
-- Locks: outbox rows, those of others are skipped. Served by: outbox_unpublished.
WITH due AS (
    SELECT job_id FROM holdfast.outbox
    WHERE next_at IS NOT NULL AND published_at IS NULL AND next_at <= now()
    ORDER BY deliver_at LIMIT $1 FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE holdfast.outbox o SET next_at = now() + $2::bigint * interval '1 ms' FROM due d WHERE o.job_id = d.job_id
    RETURNING o.job_id, o.generation, o.priority, o.deliver_at
)
SELECT job_id, generation, priority, greatest(0, extract(epoch FROM deliver_at - now()) * 1000)::bigint AS delay_ms FROM taken ORDER BY priority, deliver_at, job_id
