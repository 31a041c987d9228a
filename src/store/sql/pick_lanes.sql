-- Deals plans to the pool's lanes that are active, not full and whose key is loaded here, one after the other from the pool's cursor.
-- Locks: the pool's row. Served by: pools_pkey, lanes_by_pool.
WITH turn AS (
    UPDATE holdfast.pools SET cursor = cursor + $3::bigint WHERE chain_id = $1 AND name = $2 RETURNING cursor - $3::bigint AS start
), free AS (
    SELECT id, signer, row_number() OVER (ORDER BY id) - 1 AS place, count(*) OVER () AS total
    FROM holdfast.lanes
    WHERE chain_id = $1 AND pool = $2 AND state = 'active' AND next_nonce - latest_nonce < CASE WHEN delegated THEN least(width, 1) ELSE width END
      AND next_nonce >= latest_nonce AND signer = ANY ($4::bytea[])
)
SELECT f.id, f.signer
FROM generate_series(0, $3::bigint - 1) AS n (i) CROSS JOIN turn t JOIN free f ON f.place = (t.start + n.i) % f.total
ORDER BY n.i
