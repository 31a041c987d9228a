-- Where a delivery is, in one word. Put in front of the scripts that ask.
-- The sorted sets come first: their look-up does not depend on how many deliveries there are.
local function place(base, id)
  if redis.call('ZSCORE', base .. 'completed', id) or redis.call('ZSCORE', base .. 'failed', id) then return 'finished' end
  if redis.call('ZSCORE', base .. 'prioritized', id) then return 'waiting' end
  if redis.call('ZSCORE', base .. 'delayed', id) then return 'delayed' end
  if redis.call('LPOS', base .. 'active', id) then return 'active' end
  if redis.call('LPOS', base .. 'wait', id) or redis.call('LPOS', base .. 'paused', id)
    or redis.call('ZSCORE', base .. 'waiting-children', id) then return 'waiting' end
  if redis.call('EXISTS', base .. id) == 1 then return 'orphan' end
  return 'absent'
end
