-- Reads where deliveries are. Changes nothing.
-- KEYS[1] meta (routes the script)   ARGV[1] base   then the ids
local answers = {}
for at = 2, #ARGV do answers[#answers + 1] = place(ARGV[1], ARGV[at]) end
return answers
