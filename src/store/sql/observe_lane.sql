-- Notes what a majority showed of a lane's nonces. The fence is never touched. Only the holder of the lease writes.
-- Locks: the lane's row. Served by: lanes_pkey.
UPDATE holdfast.lanes
SET latest_nonce = greatest(latest_nonce, $3), settled_nonce = greatest(settled_nonce, $4), updated_at = now()
WHERE id = $1 AND lease_holder = $2 AND lease_until > now() AND (latest_nonce < $3 OR settled_nonce < $4)
