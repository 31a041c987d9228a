-- Notes what a majority showed of a lane's nonces, once a block; a reorganisation takes the newest count back, and the wait starts anew. The fence moves only over nonces that a majority has seen used up at
-- TX_CONFIRMATIONS although nobody here had given them out; that is written down as an act of the service and never happens silently.
-- Only the holder of the lease writes. Locks: the lane's row. Served by: lanes_pkey.
WITH held AS (
    SELECT id, chain_id, signer, next_nonce, latest_nonce FROM holdfast.lanes
    WHERE id = $1 AND lease_holder = $2 AND lease_until > now() FOR UPDATE
), noted AS (
    UPDATE holdfast.lanes l SET latest_nonce = $3, settled_nonce = greatest(l.settled_nonce, $4), pending_nonce = $5, observed_block = $6,
        observed_at = now(), head_since = CASE WHEN $3 <> h.latest_nonce THEN now() ELSE l.head_since END, next_nonce = greatest(l.next_nonce, $4), updated_at = now()
    FROM held h WHERE l.id = h.id
), adopted AS (
    INSERT INTO holdfast.operator_actions (operator_id, action, target, reason, before, after)
    SELECT 'holdfast', 'lanes.adopt_used_nonces', '0x' || encode(signer, 'hex') || '@' || chain_id,
           'a majority has seen these nonces used up at TX_CONFIRMATIONS by transactions that are not ours', next_nonce::text, $4::text
    FROM held WHERE $4 > next_nonce
    RETURNING 1
)
SELECT h.next_nonce AS fence_was, EXISTS (SELECT 1 FROM adopted) AS adopted FROM held h
