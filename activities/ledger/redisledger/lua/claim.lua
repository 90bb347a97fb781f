-- Repeated: the claim is there, and mine; nothing is written.
-- KEYS claim; ARGV body, handoff, owner, window ms
return claim(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
