-- Repeated: the attempt is promised already; only its lease grows.
-- KEYS seat, ends, blocks, gone; ARGV attempt, incarnation, blocks, lease ms, promises max, ttl ms
return reserve(ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6])
