-- Jobs with what the chain knows of them, by id. Locks nothing. Served by: jobs_pkey, lineages_by_job, tx_attempts (lineage_id, ordinal).
SELECT j.id, j.project, j.kind, j.state, j.version, j.chain_id, j.pool, j.to_address, j.value, j.priority, j.attempts, j.run_at, j.metadata, j.cancel_asked_at,
       j.error_type, j.error_title, j.error_detail, j.created_at, j.updated_at, j.finished_at, o.generation, o.deliver_at, o.next_at, o.published_at,
       l.id AS lineage_id, l.signer, l.nonce, l.state AS lineage_state, l.mined_hash, l.block_number, l.block_hash, l.gas_used, l.effective_gas_price,
       l.sends, l.last_sent_at, l.last_answer, l.proof, a.hashes, a.max_fee, a.tip, h.number AS head_number
FROM unnest($1::uuid[]) WITH ORDINALITY AS i (id, place)
JOIN holdfast.jobs j ON j.id = i.id
LEFT JOIN holdfast.outbox o ON o.job_id = j.id
LEFT JOIN LATERAL (SELECT * FROM holdfast.lineages WHERE job_id = j.id ORDER BY created_at DESC LIMIT 1) l ON true
LEFT JOIN LATERAL (
    SELECT array_agg(hash ORDER BY ordinal) AS hashes, (array_agg(max_fee_per_gas ORDER BY ordinal DESC))[1] AS max_fee,
           (array_agg(max_priority_fee_per_gas ORDER BY ordinal DESC))[1] AS tip
    FROM holdfast.tx_attempts WHERE lineage_id = l.id
) a ON true
LEFT JOIN holdfast.heads h ON h.chain_id = j.chain_id
WHERE $2 = '' OR j.project = $2
ORDER BY i.place
