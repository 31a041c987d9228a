-- Notes that the deaths of jobs are dealt with; the jobs stay what they are. The operator's rows are written in the same statement.
-- Locks: jobs, in the order of id. Served by: jobs_pkey.
WITH held AS (
    SELECT j.id, j.state, j.finished_at FROM holdfast.jobs j WHERE j.id = ANY ($1::uuid[]) ORDER BY j.id FOR UPDATE OF j
), noted AS (
    INSERT INTO holdfast.job_resolutions (job_id, finished_at, operator_id, reason)
    SELECT id, finished_at, $2, $3 FROM held WHERE state IN ('dead', 'quarantined')
    ON CONFLICT DO NOTHING
    RETURNING job_id
), audit AS (
    INSERT INTO holdfast.operator_actions (operator_id, action, target, reason, before, after)
    SELECT $2, 'jobs.resolve', n.job_id::text, $3, h.state, 'resolved' FROM noted n JOIN held h ON h.id = n.job_id
)
SELECT h.id, h.state, (n.job_id IS NOT NULL) AS resolved FROM held h LEFT JOIN noted n ON n.job_id = h.id ORDER BY h.id
