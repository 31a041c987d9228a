-- Takes or keeps the settling of a lane for this process. Locks: the lane's row. Served by: lanes_pkey.
UPDATE holdfast.lanes SET lease_holder = $2, lease_until = now() + $3::bigint * interval '1 ms'
WHERE id = $1 AND (lease_holder IS NULL OR lease_until < now() OR lease_holder = $2)
RETURNING id, chain_id, pool, signer, state, reason, next_nonce, latest_nonce, settled_nonce, width, delegated, extract(epoch FROM now() - head_since)::double precision AS head_seconds
