-- Stores ends of greater rank than those that are there, and counts those of which none of their generation is. ARGV: 1 if they are counted, 0 if they are facts of tasks that
-- go on; then as `look` says. Their numbers say nothing.

-- Whether the rank of a stored end is less than that of one that was sent. Each is 8 bytes, which a number of Lua does not hold.
local function is_less(record, sent)
    local high, low = struct.unpack('>I4I4', record, 13)
    local new_high, new_low = struct.unpack('>I4I4', sent, 7)
    return high < new_high or high == new_high and low < new_low
end

local all = ledger().look(2)

-- Whether no end of this task is there.
local function is_first(i)
    local former = all.formers[i]
    return not former or #former < 21 or not ledger().is_kept(former)
end

ledger().store(ledger().select_some(all, function(i)
    return is_first(i) or is_less(all.formers[i], all.sent[i])
end))
if ARGV[1] == '1' then
    -- A rank begins with the generation.
    ledger().count_some(all, function(i)
        return is_first(i) or struct.unpack('>I2', all.formers[i], 13) < all.counts[i].generation
    end)
end
return 1
