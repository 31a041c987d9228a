-- Hands the deliveries whose lock ran out to whoever takes next: each goes to the front of its own priority.
-- A lock is set by the step that makes a delivery active and cannot be renewed once it is gone, so one look is enough.
-- KEYS[1] active   KEYS[2] stalled-check (one sweep per interval over all processes)
-- ARGV[1] base   ARGV[2] interval in ms   ARGV[3] how many at most
-- Returns the ids handed over.
local base, most = ARGV[1], tonumber(ARGV[3])
if not redis.call('SET', KEYS[2], '1', 'NX', 'PX', ARGV[2]) then return {} end
local active = redis.call('LRANGE', KEYS[1], 0, -1)
local handed = {}
-- The oldest are at the tail.
for at = #active, 1, -1 do
  local id = active[at]
  local record = base .. id
  if redis.call('EXISTS', record .. ':lock') == 0 then
    redis.call('LREM', KEYS[1], -1, id)
    redis.call('SREM', base .. 'stalled', id)
    if redis.call('EXISTS', record) == 1 then
      redis.call('HINCRBY', record, 'stc', 1)
      local priority = tonumber(redis.call('HGET', record, 'priority')) or 0
      if priority > 0 then
        redis.call('ZADD', base .. 'prioritized', priority * 4294967296, id)
      else
        redis.call('RPUSH', base .. 'wait', id)
      end
      redis.call('XADD', base .. 'events', 'MAXLEN', '~', 10000, '*', 'event', 'waiting', 'jobId', id, 'prev', 'active')
      redis.call('XADD', base .. 'events', 'MAXLEN', '~', 10000, '*', 'event', 'stalled', 'jobId', id)
      handed[#handed + 1] = id
      if #handed >= most then
        -- More are left: let the next call come at once.
        redis.call('DEL', KEYS[2])
        break
      end
    end
  end
end
if #handed > 0 and not redis.call('HGET', base .. 'meta', 'paused') then redis.call('ZADD', base .. 'marker', 0, '0') end
return handed
