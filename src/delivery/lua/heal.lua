-- Removes the leftover record of a delivery that is in no list, so that publishing its id works again. Any other record stays.
-- KEYS[1] the record   ARGV[1] base   ARGV[2] id
-- Returns 1 when a leftover was removed.
if place(ARGV[1], ARGV[2]) ~= 'orphan' then return 0 end
redis.call('DEL', KEYS[1], KEYS[1] .. ':lock', KEYS[1] .. ':logs')
return 1
