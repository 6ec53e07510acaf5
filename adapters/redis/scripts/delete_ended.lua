-- Deletes ends. ARGV: ids. Returns a digit for each, 1 if there was one that had not lapsed.

local answers, was_there = {}, {}
for i, record in ipairs(ledger().free(ARGV)) do
    local is_first = not was_there[ARGV[i]]
    was_there[ARGV[i]] = true
    answers[i] = record and is_first and ledger().is_kept(record) and '1' or '0'
end
return concat(answers)
