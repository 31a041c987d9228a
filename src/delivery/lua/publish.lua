-- Writes a batch of deliveries as BullMQ v6 records, each at most once: a record that exists is left as it is and its place is told.
-- Due times are by Redis' clock, so a publisher with a wrong clock delays nothing.
-- KEYS[1] meta (routes the script)   ARGV[1] base   ARGV[2] record name   then per delivery: id, data, opts, priority, delay in ms
-- Returns per delivery 'new' or a place.
local base, name = ARGV[1], ARGV[2]
local meta, events, marker, delayed = KEYS[1], base .. 'events', base .. 'marker', base .. 'delayed'
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local settings = redis.call('HMGET', meta, 'paused', 'concurrency', 'opts.maxLenEvents')
local limit = settings[3]
if not limit then
  limit = '10000'
  redis.call('HSET', meta, 'opts.maxLenEvents', limit)
end
local quiet = settings[1] or (settings[2] and redis.call('LLEN', base .. 'active') >= tonumber(settings[2]))

-- BullMQ orders due work by millisecond and, within one, by up to 4096 arrivals.
local function due_score(due)
  local first, last = due * 4096, due * 4096 + 4095
  local latest = redis.call('ZREVRANGEBYSCORE', delayed, last, first, 'WITHSCORES', 'LIMIT', 0, 1)
  if #latest == 0 then return first end
  return math.min(tonumber(latest[2]) + 1, last)
end

local answers, ready, later = {}, false, false
for at = 3, #ARGV, 5 do
  local id, data, opts, priority, delay = ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local record = base .. id
  if redis.call('EXISTS', record) == 1 then
    answers[#answers + 1] = place(base, id)
    redis.call('XADD', events, 'MAXLEN', '~', limit, '*', 'event', 'duplicated', 'jobId', id)
  else
    redis.call('HSET', record, 'name', name, 'data', data, 'opts', opts, 'timestamp', now, 'delay', delay, 'priority', priority,
      'due', now + delay)
    redis.call('INCR', base .. 'id')
    redis.call('XADD', events, 'MAXLEN', '~', limit, '*', 'event', 'added', 'jobId', id, 'name', name)
    if delay > 0 then
      redis.call('ZADD', delayed, due_score(now + delay), id)
      redis.call('XADD', events, 'MAXLEN', '~', limit, '*', 'event', 'delayed', 'jobId', id, 'delay', now + delay)
      later = true
    else
      local arrival = redis.call('INCR', base .. 'pc') % 4294967296
      redis.call('ZADD', base .. 'prioritized', priority * 4294967296 + arrival, id)
      redis.call('XADD', events, 'MAXLEN', '~', limit, '*', 'event', 'waiting', 'jobId', id)
      ready = true
    end
    answers[#answers + 1] = 'new'
  end
end

-- The marker is what wakes an idle consumer; it carries no delivery.
if later then
  local head = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
  redis.call('ZADD', marker, tonumber(head[2]) / 4096, '1')
end
if ready and not quiet then redis.call('ZADD', marker, 0, '0') end
return answers
