-- Journals signed bytes: the attempt rows and the state of their lineages, for executions that still hold their token.
-- Nothing is broadcast before this has committed. Locks: jobs with their lineages, in the order of job_id. Served by: jobs_pkey, lineages_pkey.
WITH input AS (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bytea[], $5::numeric[], $6::numeric[], $7::bigint[], $8::text[], $9::bytea[], $10::bytea[], $12::text[], $13::smallint[])
        AS t (lineage_id, job_id, token, hash, max_fee, tip, gas_limit, key_id, iv, ciphertext, purpose, tx_type)
), held AS (
    SELECT i.* FROM input i JOIN holdfast.jobs j ON j.id = i.job_id JOIN holdfast.lineages l ON l.id = i.lineage_id
    WHERE j.state = 'processing' AND j.execution_token = i.token ORDER BY j.id FOR UPDATE OF j, l
), signed AS (
    UPDATE holdfast.lineages l SET state = 'signed', updated_at = now() FROM held h WHERE l.id = h.lineage_id AND l.state = ANY ($11::text[]) RETURNING l.id
)
INSERT INTO holdfast.tx_attempts (hash, lineage_id, ordinal, purpose, max_fee_per_gas, max_priority_fee_per_gas, gas_limit, key_id, iv, ciphertext, tx_type)
SELECT h.hash, h.lineage_id, 1, h.purpose, h.max_fee, h.tip, h.gas_limit, h.key_id, h.iv, h.ciphertext, h.tx_type FROM held h JOIN signed s ON s.id = h.lineage_id
RETURNING lineage_id
