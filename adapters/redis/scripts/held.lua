-- Whether deliveries are held. ARGV: their proofs. Returns a digit for each.

local answers = {}
for i, proof in ipairs(ARGV) do
    answers[i] = is_held(call('HGET', base .. 'leases', sub(proof, 1, 16)), sub(proof, 17, 32)) and '1' or '0'
end
return concat(answers)
