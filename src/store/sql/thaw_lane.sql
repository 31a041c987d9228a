-- Thaws a frozen lane: ends in blocks that are no longer canonical, and losses whose nonces the chain has not used up any more, are provisional again, so that
-- the next round of the lane undoes them. The lane settles and gives out no nonce until its signer is opened again. Who did it is on record.
-- Locks: the lane's row, then its lineages. Served by: lanes_pkey, lineages_finalized, lineages_given_up.
WITH held AS (
    SELECT id, chain_id, signer, reason FROM holdfast.lanes WHERE id = $1 AND state = 'frozen' FOR UPDATE
), blocks AS (
    SELECT * FROM unnest($2::bigint[], $3::bytea[]) AS t (number, hash)
), undone AS (
    UPDATE holdfast.lineages l SET finalized_at = NULL, updated_at = now() FROM held h CROSS JOIN blocks b
    WHERE l.lane_id = h.id AND l.block_number = b.number AND l.block_hash = b.hash AND l.finalized_at IS NOT NULL AND l.block_number IS NOT NULL
    RETURNING l.id
), regained AS (
    UPDATE holdfast.lineages l SET finalized_at = NULL, updated_at = now() FROM held h
    WHERE l.lane_id = h.id AND l.nonce >= $4 AND l.state = 'superseded' AND l.finalized_at IS NOT NULL
    RETURNING l.id
), counted AS (
    -- The guard of the table looks at the lane's state: it is changed only once all of these were.
    SELECT (SELECT count(*) FROM undone) + (SELECT count(*) FROM regained) AS ends
), thawed AS (
    UPDATE holdfast.lanes n SET state = 'draining', reason = 'thawed', updated_at = now() FROM held h, counted c WHERE n.id = h.id AND c.ends >= 0
    RETURNING n.id, c.ends
), audit AS (
    INSERT INTO holdfast.operator_actions (operator_id, action, target, reason, before, after)
    SELECT $5, 'lanes.thaw', '0x' || encode(h.signer, 'hex') || '@' || h.chain_id, $6, 'frozen: ' || coalesce(h.reason, ''), 'draining, ' || t.ends || ' ends are provisional again'
    FROM held h JOIN thawed t ON t.id = h.id
)
SELECT ends FROM thawed
