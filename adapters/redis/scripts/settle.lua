-- Settles. ARGV: as `finish` says.

return (finish())
