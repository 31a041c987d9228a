-- Hands the place of a signer in a pool over to another, or says which gate refuses: the fence of the old one is closed, nothing of it is
-- open, its newest retirement proof passed and is young; the new one is held by a live process (or the operator says that it will be).
-- Everything happens here or nothing. Locks: both lanes. Served by: lanes_chain_id_signer_key, retirement_proofs_by_subject.
WITH old AS (
    SELECT l.id, l.state, l.pool, EXISTS (SELECT 1 FROM holdfast.lineages o WHERE o.lane_id = l.id AND o.state = ANY ($12::text[])) AS open
    FROM holdfast.lanes l WHERE l.chain_id = $1 AND l.signer = $3 FOR UPDATE OF l
), new AS (
    SELECT l.id, l.state, l.pool FROM holdfast.lanes l WHERE l.chain_id = $1 AND l.signer = $4 FOR UPDATE OF l
), proof AS (
    SELECT id, passed, at > now() - $9::bigint * interval '1 ms' AS young FROM holdfast.retirement_proofs
    WHERE kind = 'signer' AND subject = '0x' || encode($3, 'hex') ORDER BY at DESC, id DESC LIMIT 1
), held AS (
    SELECT count(*) AS workers FROM holdfast.workers
    WHERE state IN ('starting', 'active', 'draining', 'drained') AND heartbeat_at >= now() - $10::bigint * interval '1 ms' AND $4 = ANY (signers)
), verdict AS (
    SELECT CASE
        WHEN NOT EXISTS (SELECT 1 FROM old) THEN 'unknown-signer'
        WHEN (SELECT pool FROM old) <> $2 THEN 'other-pool'
        WHEN (SELECT state FROM old) <> 'drained' THEN 'signer-not-drained'
        WHEN (SELECT open FROM old) THEN 'active-lineages'
        WHEN NOT EXISTS (SELECT 1 FROM proof WHERE passed) THEN 'retirement-proof'
        WHEN NOT EXISTS (SELECT 1 FROM proof WHERE young) THEN 'proof-age'
        WHEN EXISTS (SELECT 1 FROM new WHERE pool <> $2) THEN 'other-pool'
        WHEN EXISTS (SELECT 1 FROM new WHERE state NOT IN ('active', 'paused')) THEN 'new-signer-closed'
        WHEN (SELECT workers FROM held) = 0 AND NOT $11 THEN 'signer-not-loaded'
    END AS gate
), go AS (
    SELECT 1 FROM verdict WHERE gate IS NULL
), known AS (
    INSERT INTO holdfast.signers (address) SELECT $4 FROM go ON CONFLICT DO NOTHING
), retired AS (
    UPDATE holdfast.lanes l SET state = 'retired', reason = 'rotated', updated_at = now() FROM old o, go WHERE l.id = o.id RETURNING l.id
), made AS (
    INSERT INTO holdfast.lanes (chain_id, pool, signer, state, next_nonce, latest_nonce, settled_nonce, width)
    SELECT $1, $2, $4, 'active', $5, $5, $5, $6 FROM go WHERE NOT EXISTS (SELECT 1 FROM new) RETURNING id
), history AS (
    INSERT INTO holdfast.signer_history (chain_id, pool, signer, change, actor)
    SELECT $1, $2, $3, 'left', $7 FROM retired UNION ALL SELECT $1, $2, $4, 'joined', $7 FROM made
), audit AS (
    INSERT INTO holdfast.operator_actions (operator_id, action, target, reason, before, after)
    SELECT $7, 'pools.rotate', $1 || ' ' || $2, $8, '0x' || encode($3, 'hex') || ' ' || coalesce((SELECT state FROM old), 'unknown'),
           CASE WHEN v.gate IS NULL
                THEN '0x' || encode($4, 'hex') || CASE WHEN EXISTS (SELECT 1 FROM made) THEN ' from nonce ' || $5 ELSE ' as it was' END || ', proof ' || (SELECT id FROM proof)
                ELSE 'refused: ' || v.gate END
    FROM verdict v
)
SELECT v.gate, (SELECT id FROM proof) AS proof, (SELECT workers FROM held) AS workers, EXISTS (SELECT 1 FROM made) AS made FROM verdict v
