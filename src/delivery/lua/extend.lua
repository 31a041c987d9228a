-- Renews the locks that are still ours, all in one call.
-- KEYS[1] stalled   ARGV[1] base   ARGV[2] lock in ms   then per delivery: id, token
-- Returns per delivery 1, or 0 when the lock is another's or gone.
local answers = {}
for at = 3, #ARGV, 2 do
  local lock = ARGV[1] .. ARGV[at] .. ':lock'
  if redis.call('GET', lock) == ARGV[at + 1] then
    redis.call('PEXPIRE', lock, ARGV[2])
    redis.call('SREM', KEYS[1], ARGV[at])
    answers[#answers + 1] = 1
  else
    answers[#answers + 1] = 0
  end
end
return answers
