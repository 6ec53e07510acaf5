-- A part of a page of ends, the newest first. ARGV: how many to look at, the bounds of moment and id, the upper one first, and the states.
-- Returns the last moment and id that it looked at, or an empty text if there are no more, and of each end that has not lapsed its id
-- and what is stored.

local most, high, low, states = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local lists, picked = {}, {}

-- A moment and an id as numbers. The order of texts in Lua depends on the server's settings.
local function numbers_of(member)
    return { struct.unpack('>I6I4I4I4I4', member) }
end

local function is_greater(one, other)
    for i = 1, 5 do
        if one[i] ~= other[i] then
            return one[i] > other[i]
        end
    end
    return false
end

local function greatest()
    local best
    for _, list in ipairs(lists) do
        if list.numbers and (not best or is_greater(list.numbers, best.numbers)) then
            best = list
        end
    end
    return best
end

for state in string.gmatch(states, '.') do
    local members = call('ZREVRANGEBYLEX', ledger().listed(state), high, low, 'LIMIT', 0, most)
    if #members > 0 then
        lists[#lists + 1] = { members = members, at = 1, numbers = numbers_of(members[1]) }
    end
end
while #picked < most do
    local list = greatest()
    if not list then
        break
    end
    picked[#picked + 1] = list.members[list.at]
    list.at = list.at + 1
    list.numbers = list.members[list.at] and numbers_of(list.members[list.at])
end
local found = { #picked == most and picked[most] or '' }
if #picked == 0 then
    return found
end
local ids = {}
for i, member in ipairs(picked) do
    ids[i] = sub(member, 7)
end
for i, record in ipairs(call('HMGET', ledger().ended, unpack(ids))) do
    if record and ledger().is_kept(record) then
        found[#found + 1] = ids[i]
        found[#found + 1] = record
    end
end
return found
