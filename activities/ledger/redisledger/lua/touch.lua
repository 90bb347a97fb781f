-- Keeps an engine's account while the engine registers. Repeated: kept longer.
-- KEYS seat, ends, blocks, gone; ARGV ttl ms
keep(ARGV[1])
return {'none', ''}
