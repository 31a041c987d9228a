-- Ends executions that bound no nonce or give their job back: the job, its attempt, its delivery and its event together.
-- A job that may not die when its attempts are spent gets a fresh delivery with as many again: `fresh` counts them.
-- A job that owns a nonce ends with it and never here: it goes to retry whatever was found out without it. One whose cancellation was
-- asked and that has no nonce ends now.
-- A stale token, worker or attempt number changes nothing and gives no row. Postgres throws the dice of the back-off.
-- Locks: jobs with their outbox rows, in the order of id. Served by: jobs_pkey, job_attempts_pkey, outbox_pkey.
WITH input AS (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::integer[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bigint[], $10::boolean[], $14::integer[])
        AS t (job_id, token, number, state, outcome, error_type, error_title, detail, ceiling_ms, refund, fresh)
), held AS (
    SELECT i.job_id, i.token, i.number, i.error_type, i.error_title, i.detail, i.ceiling_ms, i.refund, i.fresh,
           CASE WHEN j.lineage_id IS NOT NULL AND NOT i.state = ANY ($12::text[]) THEN 'retry'
                WHEN j.lineage_id IS NULL AND j.cancel_asked_at IS NOT NULL AND i.state = ANY ($12::text[]) THEN 'cancelled' ELSE i.state END AS state,
           CASE WHEN j.lineage_id IS NOT NULL AND NOT i.state = ANY ($12::text[]) THEN 'retry'
                WHEN j.lineage_id IS NULL AND j.cancel_asked_at IS NOT NULL AND i.state = ANY ($12::text[]) THEN 'cancelled' ELSE i.outcome END AS outcome,
           (i.ceiling_ms / 2.0 * (1 + random()))::bigint AS delay_ms
    FROM input i JOIN holdfast.jobs j ON j.id = i.job_id JOIN holdfast.outbox o ON o.job_id = j.id
    WHERE j.state = 'processing' AND j.execution_token = i.token AND j.worker_id = $11 AND j.attempts = i.number
    ORDER BY j.id FOR UPDATE OF j, o
), ended AS (
    UPDATE holdfast.jobs j
    SET state = h.state, version = j.version + 1, execution_token = NULL, worker_id = NULL, processing_since = NULL, updated_at = now(),
        attempts_budget = j.attempts_budget + h.refund::integer + h.fresh,
        error_type = CASE WHEN h.refund THEN j.error_type ELSE NULLIF(h.error_type, '') END,
        error_title = CASE WHEN h.refund THEN j.error_title ELSE NULLIF(h.error_title, '') END,
        error_detail = CASE WHEN h.refund THEN j.error_detail ELSE NULLIF(h.detail, '') END,
        finished_at = CASE WHEN h.state = ANY ($12::text[]) THEN NULL ELSE now() END
    FROM held h WHERE j.id = h.job_id
    RETURNING j.id, j.version, j.state, h.number, h.outcome, h.error_type, h.detail, h.delay_ms, h.token, h.fresh
), attempt AS (
    UPDATE holdfast.job_attempts a SET finished_at = now(), outcome = e.outcome, error_type = NULLIF(e.error_type, ''), detail = NULLIF(e.detail, '')
    FROM ended e WHERE a.job_id = e.id AND a.number = e.number
), delivery AS (
    UPDATE holdfast.outbox o
    SET deliver_at = CASE WHEN e.state = ANY ($12::text[]) THEN now() + e.delay_ms * interval '1 ms' ELSE o.deliver_at END,
        generation = o.generation + (e.fresh > 0)::integer, published_at = CASE WHEN e.fresh > 0 THEN NULL ELSE o.published_at END,
        next_at = CASE WHEN e.fresh > 0 THEN now() WHEN e.state = ANY ($12::text[]) THEN now() + (e.delay_ms + $13::bigint) * interval '1 ms' ELSE NULL END
    FROM ended e WHERE o.job_id = e.id
), event AS (
    INSERT INTO holdfast.stream_events (domain, key, version, type) SELECT 'job', id, version, state FROM ended
)
SELECT id, token, delay_ms FROM ended
