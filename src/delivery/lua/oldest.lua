-- For how long the longest waiting delivery has been due, in ms; -1 when none waits.
-- Within a priority the first is the oldest, so this looks at one record per priority in use.
-- KEYS[1] prioritized   ARGV[1] base
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local oldest = -1
local function look(id)
  local times = redis.call('HMGET', ARGV[1] .. id, 'due', 'timestamp')
  local due = tonumber(times[1] or times[2])
  if due then oldest = math.max(oldest, now - due) end
end
local waiting = redis.call('LINDEX', ARGV[1] .. 'wait', -1)
if waiting then look(waiting) end
local head = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
for _ = 1, 200 do
  if #head == 0 then break end
  look(head[1])
  local next_priority = (math.floor(tonumber(head[2]) / 4294967296) + 1) * 4294967296
  head = redis.call('ZRANGEBYSCORE', KEYS[1], next_priority, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
end
return oldest
