-- Journals more attempts at nonces that have one: dearer bytes of the call, or a no-op that uses the nonce up. Only the holder of the
-- lane's lease writes, only while the newest attempt is the one that the price was made over, and never over a nonce that has ended.
-- Locks: lineages, in the order of job_id. Served by: lineages_pkey, lanes_pkey.
WITH input AS (
    SELECT * FROM unnest($1::uuid[], $2::bytea[], $3::integer[], $4::text[], $5::numeric[], $6::numeric[], $7::bigint[], $8::text[], $9::bytea[], $10::bytea[], $11::smallint[])
        AS t (lineage_id, hash, ordinal, purpose, max_fee, tip, gas_limit, key_id, iv, ciphertext, tx_type)
), lease AS (
    SELECT id FROM holdfast.lanes WHERE id = $12 AND lease_holder = $13 AND lease_until > now()
), held AS (
    SELECT i.* FROM input i JOIN holdfast.lineages l ON l.id = i.lineage_id JOIN lease ON lease.id = l.lane_id
    WHERE l.state = ANY ($14::text[]) AND (i.purpose <> 'noop' OR l.noop_reason IS NOT NULL)
      -- Counted on the row itself, which a concurrent writer would have changed.
      AND i.ordinal = 2 + l.replacements + l.noops
    ORDER BY l.job_id FOR UPDATE OF l
), priced AS (
    UPDATE holdfast.lineages l SET state = 'replaced', priced_block = $15, priced_at = now(), capped_at = NULL, last_answer = NULL, updated_at = now(),
        replacements = l.replacements + (h.purpose = 'replacement')::integer, noops = l.noops + (h.purpose = 'noop')::integer
    FROM held h WHERE l.id = h.lineage_id
    RETURNING l.id
)
INSERT INTO holdfast.tx_attempts (hash, lineage_id, ordinal, purpose, max_fee_per_gas, max_priority_fee_per_gas, gas_limit, key_id, iv, ciphertext, tx_type)
SELECT h.hash, h.lineage_id, h.ordinal, h.purpose, h.max_fee, h.tip, h.gas_limit, h.key_id, h.iv, h.ciphertext, h.tx_type FROM held h JOIN priced p ON p.id = h.lineage_id
RETURNING lineage_id
