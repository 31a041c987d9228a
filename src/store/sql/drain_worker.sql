-- Marks or unmarks the newest process of an instance (by its name, or by the id of one start), and writes down who did. A process whose
-- heartbeat is old is left alone. Locks: the worker's row. Served by: workers_pkey (the table holds recent starts only).
WITH held AS (
    SELECT id, instance, state, processing, heartbeat_at >= now() - $2::bigint * interval '1 ms' AS healthy
    FROM holdfast.workers WHERE instance = $1 OR id::text = $1 ORDER BY started_at DESC LIMIT 1 FOR UPDATE
), moved AS (
    UPDATE holdfast.workers w SET state = $3 FROM held h WHERE w.id = h.id AND h.healthy AND h.state = ANY ($4::text[]) RETURNING w.id
), audit AS (
    INSERT INTO holdfast.operator_actions (operator_id, action, target, reason, before, after)
    SELECT $5, $6, h.instance || ' ' || h.id, $7, h.state, CASE WHEN m.id IS NOT NULL THEN $3 ELSE 'unchanged' END
    FROM held h LEFT JOIN moved m ON m.id = h.id
)
SELECT h.id, h.instance, h.state, h.processing, h.healthy, (m.id IS NOT NULL) AS moved FROM held h LEFT JOIN moved m ON m.id = h.id
