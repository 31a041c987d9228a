-- The jobs that idempotency keys stand for. Locks nothing. Served by: idempotency_keys_pkey.
SELECT k.project, k.key, k.fingerprint, k.job_id
FROM unnest($1::text[], $2::text[]) AS i (project, key)
JOIN holdfast.idempotency_keys k ON k.project = i.project AND k.key = i.key
