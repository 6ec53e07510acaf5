-- Pauses or resumes. ARGV: 1 or 0.

write_though_full()
if ARGV[1] == '1' then
    call('HSET', base .. 'state', 'paused', 1)
    -- Who looks for what is paused finds it, also if nothing was pushed yet. Dead letters are found with their partition.
    if sub(KEYS[2], -11) == ':partitions' and sub(base, -5) ~= 'dead:' then
        call('ZADD', KEYS[2], 'GT', LAYOUT, string.match(base, '{(.*)}'))
    end
else
    call('HDEL', base .. 'state', 'paused')
    tell(base, 1000000)
end
