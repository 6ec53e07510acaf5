-- Pauses or resumes. ARGV: 1 or 0.

write_though_full()
if ARGV[1] == '1' then
    call('HSET', base .. 'state', 'paused', 1)
else
    call('HDEL', base .. 'state', 'paused')
    tell(base, 1000000)
end
