-- Closes or opens the fence of every lane of a signer, and writes down who did. A lane that is frozen or retired stays what it is.
-- Locks: the signer's lanes by id. Served by: lanes_chain_id_signer_key.
WITH held AS (
    SELECT id, chain_id, state FROM holdfast.lanes WHERE signer = $1 ORDER BY id FOR UPDATE
), moved AS (
    UPDATE holdfast.lanes l SET state = $2, reason = NULLIF($3, ''), updated_at = now()
    FROM held h WHERE l.id = h.id AND h.state = ANY ($4::text[]) RETURNING l.id, l.chain_id
), audit AS (
    INSERT INTO holdfast.operator_actions (operator_id, action, target, reason, before, after)
    SELECT $5, $6, '0x' || encode($1, 'hex'), $7, string_agg(h.chain_id || ' ' || h.state, ', ' ORDER BY h.id),
           coalesce((SELECT string_agg(m.chain_id || ' ' || $2, ', ' ORDER BY m.id) FROM moved m), 'unchanged')
    FROM held h HAVING count(*) > 0
)
SELECT h.id, h.chain_id, h.state, (m.id IS NOT NULL) AS moved FROM held h LEFT JOIN moved m ON m.id = h.id ORDER BY h.id
